"""`border-init`: writes a small repository of experiments, a copy of `border_cli/template`."""

from __future__ import annotations

import importlib.resources
import importlib.util
import keyword
import re
import shlex
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.resources.abc import Traversable
from pathlib import Path, PurePosixPath

from border_cli.cli.plain_command import plain_command
from border_cli.core.errors import ConfigError, reachable
from border_cli.core.files import expanded
from border_cli.core.words import counted, shell_command, shortest, unknown
from border_cli.launch.signals import EarlySignals

TEMPLATE_NAME = "my_experiments"  # of the package in the template; replaced wherever it occurs
RENAMED = {"gitignore": ".gitignore"}  # which would hide files of the template itself
TAKEN = ("conf", "outputs", "tests")  # folders of the repository
FLAGS = ("--help", "--version")

HELP = """\
border-init: writes a small repository for experiments of your own.

  border-init DIR [name=PACKAGE]

  DIR                              a new or empty directory; hidden files, such as .git and .venv,
                                   may be in it. Nothing is ever overwritten
  name=PACKAGE                     name of its Python package; default: the name of DIR
  --version, --help

What is written
  conf/                            an agent, an environment, a recorder and an experiment, in YAML
  PACKAGE/                         their code: settings, agent, network, environment, recorder
  tests/                           tests of them, one of which trains for a moment
  README.md, pyproject.toml, .gitignore

Examples
  border-init my_experiments
  cd my_experiments
  border-train experiment=first
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What was asked for, checked."""

    folder: Path
    name: str


def command() -> None:
    """The console script."""
    main()


def main(argv: Sequence[str] | None = None) -> None:
    """Runs the command; see `plain_command`."""
    plain_command("border-init", HELP, _run, argv, interrupted="interrupted")


def _run(typed: Sequence[str], signals: EarlySignals) -> None:
    del signals  # it takes no time
    request = read_request(typed)
    with reachable(ConfigError):
        _refuse_occupied(request.folder)
        written = write_repository(request.folder, request.name)
    sys.stdout.write(_report(request.folder, written))


def read_request(typed: Sequence[str]) -> Request:
    """Reads the arguments in any order; raises ConfigError naming what is not understood."""
    for each in (each for each in typed if each.startswith("-")):
        raise ConfigError(unknown("flag", each, FLAGS))
    pairs = [each.partition("=") for each in typed if "=" in each]
    for key, _, _ in pairs:
        if key != "name":
            raise ConfigError(unknown("option", key, ["name"]))
    folders = [each for each in typed if "=" not in each]
    if len(folders) != 1:
        raise ConfigError(f"give one directory, got {len(folders)}: {' '.join(folders)}".rstrip())
    folder = expanded(folders[0])
    name = pairs[-1][2] if pairs else folder.resolve().name
    _refuse_name(name, folder)
    return Request(folder=folder, name=name)


def _refuse_name(name: str, folder: Path) -> None:
    """Raises ConfigError for what cannot be a new package beside the folders of the repository."""
    is_name = re.fullmatch(r"[a-z][a-z0-9_]*", name) and not keyword.iskeyword(name)
    if not is_name or name in TAKEN or importlib.util.find_spec(name):
        raise ConfigError(
            f"{name!r} cannot be the name of a new package: give one of lower-case letters, digits "
            f"and underscores that is no word of Python, no package that is installed and none of "
            f"{', '.join(TAKEN)}, such as border-init {shlex.quote(str(folder))} "
            f"name={TEMPLATE_NAME}"
        )


def _refuse_occupied(folder: Path) -> None:
    there = sorted(each.name for each in folder.iterdir()) if folder.exists() else []
    visible = [each for each in there if not each.startswith(".") or each in RENAMED.values()]
    if visible:
        raise ConfigError(
            f"{folder} is not empty ({', '.join(visible[:4])}): give a directory that is new or "
            f"empty, such as border-init {shlex.quote(str(folder / TEMPLATE_NAME))}"
        )


def write_repository(folder: Path, name: str) -> list[Path]:
    """Writes every file of the template, under that name."""
    template = importlib.resources.files("border_cli") / "template"
    written = []
    for place, source in files_of(template, PurePosixPath()):
        parts = [RENAMED.get(each, each) for each in place.parts]
        parts = [name if each == TEMPLATE_NAME else each for each in parts]
        target = folder.joinpath(*parts)
        target.parent.mkdir(parents=True, exist_ok=True)
        text = source.read_text(encoding="utf-8").replace(TEMPLATE_NAME, name)
        target.write_text(text, encoding="utf-8")
        written.append(target)
    return written


def files_of(
    folder: Traversable, place: PurePosixPath
) -> Iterator[tuple[PurePosixPath, Traversable]]:
    """The files below, sorted, with their paths below `place`; without what tools leave there."""
    for each in sorted(folder.iterdir(), key=lambda each: each.name):
        if each.name.startswith((".", "__pycache__")):
            continue
        if each.is_dir():
            yield from files_of(each, place / each.name)
        else:
            yield place / each.name, each


def _report(folder: Path, written: Sequence[Path]) -> str:
    """What was written, and what to type next."""
    train = shell_command("border-train")
    cd = "" if folder.samefile(Path.cwd()) else f"  cd {shlex.quote(str(shortest(folder)))}\n"
    return (
        f"{folder}: {counted(len(written), 'file')} written; README.md says what they are\n\n"
        f"{cd}"
        f"  {train} experiment=first     # trains its agent in its environment\n"
        "  python -m pytest                  # its tests; pip install pytest\n"
        "  pip install -e .                  # then it also works in other directories\n"
    )
