"""A key with one wrong letter is refused, in every shipped file and on the command line."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path

import pytest

from border_cli.config.compose import compose
from border_cli.errors import ConfigError
from tests.support.case_sampling import sampled, thinned
from tests.support.shipped_configs import CONF, chosen_by

KEY = re.compile(
    r"(?<!kwargs:\n)^[ \t]*(?:- )?((?:optional |override )?/?[a-z_]+(?:@[a-z_.]+)?):", re.MULTILINE
)  # arguments of environments are checked when the environment is constructed
LETTERS = "abcdefghijklmnopqrstuvwxyz"


def one_letter_changed(key: str) -> str:
    rng = random.Random(key)
    position = rng.choice([position for position, letter in enumerate(key) if letter in LETTERS])
    letter = rng.choice(LETTERS.replace(key[position], ""))
    return key[:position] + letter + key[position + 1 :]


def first_of_each_key() -> dict[tuple[str, str], tuple[Path, int]]:
    """Returns the file and offset of the first occurrence of every key in its group."""
    first: dict[tuple[str, str], tuple[Path, int]] = {}
    for file in sorted(set(CONF.rglob("*.yaml")) - set(CONF.glob("search/*"))):
        for match in KEY.finditer(file.read_text(encoding="utf-8")):
            first.setdefault((file.parent.name, match[1]), (file, match.start(1)))
    return first


KEYS = dict(thinned([*first_of_each_key().items()], 8))


@pytest.mark.parametrize(
    ("group", "key"),
    sampled([*KEYS], every=5, ids=[f"{file.stem}:{key}" for (_, key), (file, _) in KEYS.items()]),
)
def test_a_letter_changed_in_a_shipped_key_is_refused(group: str, key: str, folder: Path) -> None:
    file, start = KEYS[group, key]
    text = file.read_text(encoding="utf-8")
    wrong = one_letter_changed(key)
    mine = folder / file.relative_to(CONF)
    mine.parent.mkdir(exist_ok=True)
    mine.write_text(text[:start] + wrong + text[start + len(key) :], encoding="utf-8")
    typed = chosen_by(group, file.stem) if group != "conf" else []
    with pytest.raises(ConfigError, match=rf"{file.name}|{re.escape(wrong)}"):
        compose(*typed, config_dir=str(folder))


def setting_paths(settings: object, path: str = "") -> Iterator[str]:
    members = (
        {member.name: getattr(settings, member.name) for member in fields(settings)}
        if is_dataclass(settings)
        else settings
    )
    assert isinstance(members, dict)
    for name, value in members.items():
        member_path = f"{path}.{name}" if path else name
        yield member_path
        if is_dataclass(value) or member_path in ("recorder", "callback"):
            yield from setting_paths(value, member_path)


def typed_settings() -> list[tuple[str, tuple[str, ...]]]:
    """Returns pairs of a setting and the choices under which it exists."""
    settings: dict[str, tuple[str, ...]] = {}
    for choices in ((), ("replay_buffer=prioritized", "actor_manager=serial")):
        for path in setting_paths(compose("env=cartpole", *choices)):
            settings.setdefault(path, choices)
    return sorted(settings.items())


SETTINGS = thinned(typed_settings(), 8)


@pytest.mark.parametrize(
    ("path", "choices"), sampled(SETTINGS, every=2, ids=[path for path, _ in SETTINGS])
)
def test_a_letter_changed_on_the_command_line_is_refused(
    path: str, choices: tuple[str, ...]
) -> None:
    parent, _, name = path.rpartition(".")
    wrong = f"{parent}.{one_letter_changed(name)}".lstrip(".")
    with pytest.raises(ConfigError, match=re.escape(wrong)):
        compose("env=cartpole", *choices, f"{wrong}=1")
