"""One letter of any key changed, in any file that is shipped or that `border-init` writes, and on
the command line: always refused."""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path

import pytest
from sampling import sampled

from border_cli.cli.init import write_repository
from border_cli.cli.train import main
from border_cli.config.compose import Composer, compose
from border_cli.launch.effective import EffectiveSettings

CONF = Path(__file__).parents[2] / "conf"
TEMPLATE = CONF.parent / "border_cli" / "template" / "conf"
KEY = re.compile(r"^[ \t]*(?:- )?((?:optional |override )?/?[a-z_]+(?:@[a-z_.]+)?):", re.MULTILINE)
LETTERS = "abcdefghijklmnopqrstuvwxyz"


def mutated(key: str, chance: random.Random) -> str:
    """The key with one of its letters replaced by another one."""
    places = [place for place, letter in enumerate(key) if letter in LETTERS]
    place = chance.choice(places)
    letter = chance.choice(LETTERS.replace(key[place], ""))
    return key[:place] + letter + key[place + 1 :]


def keys_in(conf: Path) -> Iterator[tuple[str, int, str]]:
    for file in sorted(conf.rglob("*.yaml")):
        text = file.read_text(encoding="utf-8")
        for found in KEY.finditer(text):
            if text[: found.start()].endswith("kwargs:\n"):
                continue  # an argument of the environment, which refuses it when it is built
            yield file.relative_to(conf).as_posix(), found.start(1), found.group(1)


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
        if is_dataclass(value) or here == "recorder":
            yield from setting_paths(value, here)


def refused(argv: list[str], capsys: pytest.CaptureFixture[str]) -> bool:
    return refusal(argv, capsys).startswith("border-train: ")


def refusal(argv: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """What is said with status 2; nothing where anything else happens."""
    with pytest.raises(SystemExit) as left:
        main(argv, run_job=never)
    said = capsys.readouterr()
    return said.err if left.value.code == 2 and not said.out else ""


def never(effective: EffectiveSettings, context: object) -> float:
    raise AssertionError(f"ran {effective} in {context}")


def chosen_by(file: str) -> list[str]:
    """The overrides that bring a shipped file into play."""
    group, _, name = file.removesuffix(".yaml").rpartition("/")
    if not group or name == "none":
        return ["env=cartpole"]
    if group == "env":
        return [f"env={name}", "env.id=CartPole-v1"]
    if group == "tuned":
        agents = Composer().options("agent")
        if name in agents:
            return [f"agent={name}", "env=cartpole"]
        agent = max((each for each in agents if name.startswith(f"{each}_")), key=len)
        return [f"agent={agent}", f"env={name.removeprefix(f'{agent}_')}"]
    return [f"{group}={name}"] + (["env=cartpole"] if group != "experiment" else [])


def first_of_each(keys: Iterable[tuple[str, int, str]]) -> Iterator[tuple[str, int, str]]:
    """The first place of every key within its group."""
    known: set[tuple[str, str]] = set()
    for file, start, key in keys:
        place = (file.rpartition("/")[0], key)
        if place not in known:
            yield file, start, key
        known.add(place)


KEYS = list(first_of_each(keys_in(CONF)))
WRITTEN = list(keys_in(TEMPLATE))


@pytest.mark.parametrize(
    ("file", "start", "key"),
    sampled(KEYS, every=36, ids=[f"{file}:{key}" for file, _, key in KEYS]),
)
def test_a_letter_changed_in_a_shipped_key_is_refused(
    file: str, start: int, key: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (CONF / file).read_text(encoding="utf-8")
    wrong = mutated(key, random.Random(f"{file}{start}"))
    mine = folder / "own" / file
    mine.parent.mkdir(parents=True)
    mine.write_text(text[:start] + wrong + text[start + len(key) :], encoding="utf-8")
    assert refused(["-cd", "own", *chosen_by(file)], capsys), wrong
    assert [each.name for each in folder.iterdir()] == ["own"]


@pytest.mark.usefixtures("own_modules")
@pytest.mark.parametrize(
    ("file", "start", "key"),
    sampled(WRITTEN, every=6, ids=[f"{file}:{key}" for file, _, key in WRITTEN]),
)
def test_a_letter_changed_in_a_key_of_a_new_repository_is_refused_with_the_file(
    file: str, start: int, key: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_repository(folder, "my_experiments")
    mine = folder / "conf" / file
    text = mine.read_text(encoding="utf-8")
    wrong = mutated(key, random.Random(f"{file}{start}"))
    mine.write_text(text[:start] + wrong + text[start + len(key) :], encoding="utf-8")
    said = refusal(["experiment=first"], capsys)
    assert f"conf/{file}" in said, f"{wrong}: {said}"
    assert not (folder / "outputs").exists()


def typed_settings() -> list[tuple[str, tuple[str, ...]]]:
    """Every setting there is, with the choices that bring it into play."""
    found: dict[str, tuple[str, ...]] = {}
    for choices in ((), ("replay_buffer=prioritized", "actor_manager=serial")):
        for path in setting_paths(compose("env=cartpole", *choices)):
            found.setdefault(path, choices)
    return sorted(found.items())


SETTINGS = typed_settings()


@pytest.mark.parametrize(
    ("path", "choices"), sampled(SETTINGS, every=16, ids=[path for path, _ in SETTINGS])
)
def test_a_letter_changed_on_the_command_line_is_refused(
    path: str, choices: tuple[str, ...], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    parent, _, name = path.rpartition(".")
    wrong = mutated(name, random.Random(path))
    override = f"{parent}.{wrong}=1" if parent else f"{wrong}=1"
    assert refused(["env=cartpole", *choices, override], capsys), override
    assert not list(folder.iterdir())
