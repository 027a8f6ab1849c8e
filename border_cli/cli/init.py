"""`border-init`: creates a small repository of experiments from `border_cli/template`."""

from __future__ import annotations

import importlib.util
import keyword
import re
import shlex
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from border_cli.cli.plain_command import plain_command, read_pairs, read_text
from border_cli.errors import ConfigError, os_errors_as
from border_cli.process.signals import EarlySignals
from border_cli.words import pluralize, shell_command, shortest

TEMPLATE = Path(__file__).parents[1] / "template"
TEMPLATE_NAME = "my_experiments"  # package in the template; replaced wherever the name occurs
RENAMED = {"gitignore": ".gitignore"}  # a .gitignore would hide files of the template itself
TAKEN = ("conf", "outputs", "tests")  # folders that the repository contains

HELP = """\
border-init: writes a small repository for experiments of your own.

  border-init DIR [name=PACKAGE]

  DIR                              a new or empty directory; it may contain hidden files, such as
                                   .git and .venv, but no .gitignore. No file is overwritten
  name=PACKAGE                     name of the Python package; default: the name of DIR, with
                                   hyphens replaced by underscores
  --version, --help

Files written
  conf/                            an agent, an environment, a recorder and an experiment, in YAML
  PACKAGE/                         the code: settings, agent, network, environment, recorder
  tests/                           tests of this code; one of them runs a short training
  README.md, pyproject.toml, .gitignore

Examples
  border-init my_experiments
  cd my_experiments
  border-train experiment=first
"""


def _run(typed: Sequence[str], _: EarlySignals) -> None:
    (folder,), values = read_pairs(typed, {"name": read_text}, ["directory"], flags=())
    name = values.get("name", folder.resolve().name.replace("-", "_"))
    _refuse_name(name, folder)
    with os_errors_as(ConfigError):
        _refuse_occupied(folder)
        num_files = write_repository(folder, name)
    sys.stdout.write(_report(folder, num_files))


def _refuse_name(name: str, folder: Path) -> None:
    """Raises ConfigError if the name is not valid for a new package in the repository."""
    is_valid = re.fullmatch(r"[a-z][a-z0-9_]*", name) and not keyword.iskeyword(name)
    if not is_valid or name in TAKEN or importlib.util.find_spec(name):
        raise ConfigError(
            f"{name!r} cannot be the name of a new package: use lower-case letters, digits "
            f"and underscores, but no Python keyword, no installed package and none of "
            f"{', '.join(TAKEN)}. Example: border-init {shlex.quote(str(folder))} "
            f"name={TEMPLATE_NAME}"
        )


def _refuse_occupied(folder: Path) -> None:
    for path in sorted(folder.iterdir()) if folder.exists() else ():
        if not path.name.startswith(".") or path.name in RENAMED.values():
            raise ConfigError(
                f"{folder} is not empty ({path.name}): give a new or empty directory, "
                f"such as border-init {shlex.quote(str(folder / TEMPLATE_NAME))}"
            )


def write_repository(folder: Path, name: str) -> int:
    """Copies the template with its package renamed to `name`. Returns the number of files."""
    paths, renamed = files_of(TEMPLATE), {**RENAMED, TEMPLATE_NAME: name}
    for path in paths:
        target = folder.joinpath(*(renamed.get(part, part) for part in path.parts))
        target.parent.mkdir(parents=True, exist_ok=True)
        content = (TEMPLATE / path).read_text(encoding="utf-8")
        target.write_text(content.replace(TEMPLATE_NAME, name), encoding="utf-8")
    return len(paths)


def files_of(folder: Path) -> list[Path]:
    """Returns the relative paths of all files in a folder, except caches such as `.ruff_cache`."""
    files = [path.relative_to(folder) for path in sorted(folder.rglob("*")) if path.is_file()]
    return [file for file in files if not re.search(r"(^|/)(\.|__pycache__)", file.as_posix())]


def _report(folder: Path, num_files: int) -> str:
    """Returns the message with the number of files written and the next commands."""
    train = shell_command("border-train")
    cd = "" if folder.samefile(Path.cwd()) else f"  cd {shlex.quote(str(shortest(folder)))}\n"
    return (
        f"{folder}: {pluralize(num_files, 'file')} written; README.md describes them\n\n"
        f"{cd}"
        f"  {train} experiment=first     # trains the example agent\n"
        "  python -m pytest                  # runs the tests; pip install pytest\n"
        "  pip install -e .                  # makes the package importable everywhere\n"
    )


main = partial(plain_command, "border-init", HELP, _run)
command = main  # entry point of the console script
