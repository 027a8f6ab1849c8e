"""One letter of any key changed, in any shipped file and on the command line: always refused."""

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
)  # an argument of the environment is refused when it is built
LETTERS = "abcdefghijklmnopqrstuvwxyz"


def one_letter_changed(key: str) -> str:
    chance = random.Random(key)
    place = chance.choice([place for place, letter in enumerate(key) if letter in LETTERS])
    letter = chance.choice(LETTERS.replace(key[place], ""))
    return key[:place] + letter + key[place + 1 :]


def first_of_each_key() -> dict[tuple[str, str], tuple[Path, int]]:
    """The first place of every key within its group."""
    found: dict[tuple[str, str], tuple[Path, int]] = {}
    for file in sorted(set(CONF.rglob("*.yaml")) - set(CONF.glob("search/*"))):
        for each in KEY.finditer(file.read_text(encoding="utf-8")):
            found.setdefault((file.parent.name, each[1]), (file, each.start(1)))
    return found


KEYS = dict(thinned([*first_of_each_key().items()], 2))


@pytest.mark.parametrize(
    ("group", "key"),
    sampled([*KEYS], every=18, ids=[f"{file.stem}:{key}" for (_, key), (file, _) in KEYS.items()]),
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
        {each.name: getattr(settings, each.name) for each in fields(settings)}
        if is_dataclass(settings)
        else settings
    )
    assert isinstance(members, dict)
    for name, value in members.items():
        here = f"{path}.{name}" if path else name
        yield here
        if is_dataclass(value) or here in ("recorder", "callback"):
            yield from setting_paths(value, here)


def typed_settings() -> list[tuple[str, tuple[str, ...]]]:
    """Every setting there is, with the choices that bring it into play."""
    found: dict[str, tuple[str, ...]] = {}
    for choices in ((), ("replay_buffer=prioritized", "actor_manager=serial")):
        for path in setting_paths(compose("env=cartpole", *choices)):
            found.setdefault(path, choices)
    return sorted(found.items())


SETTINGS = thinned(typed_settings(), 2)


@pytest.mark.parametrize(
    ("path", "choices"), sampled(SETTINGS, every=8, ids=[path for path, _ in SETTINGS])
)
def test_a_letter_changed_on_the_command_line_is_refused(
    path: str, choices: tuple[str, ...]
) -> None:
    parent, _, name = path.rpartition(".")
    wrong = f"{parent}.{one_letter_changed(name)}".lstrip(".")
    with pytest.raises(ConfigError, match=re.escape(wrong)):
        compose("env=cartpole", *choices, f"{wrong}=1")
