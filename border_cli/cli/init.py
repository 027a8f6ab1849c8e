"""`border-init`: writes a small repository of experiments, a copy of `border_cli/template`."""

from __future__ import annotations

import importlib.util
import keyword
import re
import shlex
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from border_cli.cli.plain_command import plain_command, read_pairs, text
from border_cli.errors import ConfigError, reachable
from border_cli.process.signals import EarlySignals
from border_cli.words import counted, shell_command, shortest

TEMPLATE = Path(__file__).parents[1] / "template"
TEMPLATE_NAME = "my_experiments"  # of the package in the template; replaced wherever it occurs
RENAMED = {"gitignore": ".gitignore"}  # which would hide files of the template itself
TAKEN = ("conf", "outputs", "tests")  # folders of the repository

HELP = """\
border-init: writes a small repository for experiments of your own.

  border-init DIR [name=PACKAGE]

  DIR                              a new or empty directory; hidden files, such as .git and .venv,
                                   may be in it. Nothing is ever overwritten
  name=PACKAGE                     name of its Python package; default: the name of DIR, with
                                   underscores for hyphens
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


def _run(typed: Sequence[str], _: EarlySignals) -> None:
    (folder,), values = read_pairs(typed, {"name": text}, ["directory"], flags=())
    name = values.get("name", folder.resolve().name.replace("-", "_"))
    _refuse_name(name, folder)
    with reachable(ConfigError):
        _refuse_occupied(folder)
        written = write_repository(folder, name)
    sys.stdout.write(_report(folder, written))


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
    for each in sorted(folder.iterdir()) if folder.exists() else ():
        if not each.name.startswith(".") or each.name in RENAMED.values():
            raise ConfigError(
                f"{folder} is not empty ({each.name}): give a directory that is new or empty, "
                f"such as border-init {shlex.quote(str(folder / TEMPLATE_NAME))}"
            )


def write_repository(folder: Path, name: str) -> int:
    """Writes every file of the template, under that name; how many those are."""
    places, renamed = files_of(TEMPLATE), {**RENAMED, TEMPLATE_NAME: name}
    for place in places:
        target = folder.joinpath(*(renamed.get(each, each) for each in place.parts))
        target.parent.mkdir(parents=True, exist_ok=True)
        content = (TEMPLATE / place).read_text(encoding="utf-8")
        target.write_text(content.replace(TEMPLATE_NAME, name), encoding="utf-8")
    return len(places)


def files_of(folder: Path) -> list[Path]:
    """The files below by their paths there, without what tools leave, such as `.ruff_cache`."""
    files = [each.relative_to(folder) for each in sorted(folder.rglob("*")) if each.is_file()]
    return [each for each in files if not re.search(r"(^|/)(\.|__pycache__)", each.as_posix())]


def _report(folder: Path, written: int) -> str:
    """The number of files that were written, and the next commands."""
    train = shell_command("border-train")
    cd = "" if folder.samefile(Path.cwd()) else f"  cd {shlex.quote(str(shortest(folder)))}\n"
    return (
        f"{folder}: {counted(written, 'file')} written; README.md says what they are\n\n"
        f"{cd}"
        f"  {train} experiment=first     # trains its agent in its environment\n"
        "  python -m pytest                  # its tests; pip install pytest\n"
        "  pip install -e .                  # then it also works in other directories\n"
    )


main = partial(plain_command, "border-init", HELP, _run)
command = main  # the console script
