"""Run directories may be other people's: none is on `sys.path`, so nothing in them is imported."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from border_cli.errors import ConfigError
from border_cli.system.files import SETTINGS


def run_of(place: Path) -> Path | None:
    """The run directory that a path is, or lies in."""
    whole = place.resolve()
    return next((each for each in (whole, *whole.parents) if _is_run(str(each))), None)


def _is_run(folder: str) -> bool:
    return os.path.isfile(os.path.join(folder, SETTINGS))  # noqa: PTH113, PTH118 - "" is "."


def keep_runs_off_path() -> None:
    """Removes run directories from `sys.path`, and the current directory where it lies in one.

    Child processes are given the `sys.path` of their parent.
    """
    here = ("", ".", str(Path.cwd())) if run_of(Path.cwd()) else ()
    sys.path[:] = [each for each in sys.path if each not in here and not _is_run(each)]


def refuse_standard(module: str, setting: str) -> None:
    """Refuses Python's own modules: to import `idlelib.idle`, say, is to run a program."""
    if module.partition(".")[0] in {*sys.stdlib_module_names, "test"}:
        raise ConfigError(
            f"{setting}: {module!r} is part of Python's standard library, which has no components"
        )
