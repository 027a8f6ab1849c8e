"""Rules for folders that border_cli wrote, which may come from somebody else: they lend no modules
and no plug-ins, and their settings import only the user's own modules and packages with
environments."""

from __future__ import annotations

import importlib.util
import os
import re
import sys
from importlib.metadata import distribution, packages_distributions
from itertools import accumulate
from pathlib import Path
from typing import Final

from border_cli.errors import ConfigError
from border_cli.system.files import POLICY_JSON, SETTINGS, STUDY_JSON, SWEEP_JSON, readable_bytes

MARKS: Final = (str(SETTINGS), SWEEP_JSON, STUDY_JSON, POLICY_JSON)
MOST_ABOVE: Final = 3  # levels above a folder at which a mark still counts
POLICY: Final = b"border_cli policy"  # the format that every policy.json of ours names
PLUGINS: Final = "border_cli.plugins"  # a group of entry points

_OURS, _STANDARD = Path(__file__).parents[1], Path(os.__file__).parent
_INSTALLED = {"site-packages", "dist-packages"}
_WITH_ENVIRONMENTS = {"gymnasium", "border_cli", "ale_py"}  # the last requires it for extras alone
_REQUIREMENT = re.compile(r"(?i)(gymnasium|border[-_.]cli)(?![\w.-])[^;]*(;(?!.*\bextra\b).*)?")


def mark_of(place: Path) -> Path | None:
    """Returns the file that shows that border_cli wrote a folder, in it or at most three above;
    None without one."""
    whole = place.resolve()
    for folder in (whole, *whole.parents)[: 1 + MOST_ABOVE]:
        for path in [folder / mark for mark in MARKS]:
            ours = path.name != POLICY_JSON or POLICY in readable_bytes(path)
            if ours and os.path.isfile(path):  # noqa: PTH113 - the other one raises where denied
                return path
    return None


def keep_written_folders_off_path() -> Path | None:
    """Removes folders that border_cli wrote, also the current directory, from `sys.path`, and
    returns the mark of the current directory.

    Child processes get the `sys.path` of their parent.
    """
    sys.path[:] = [
        entry for entry in sys.path if is_installed(Path(entry)) or not mark_of(Path(entry))
    ]
    return mark_of(Path.cwd())


def is_installed(place: Path) -> bool:
    """Whether a file or folder belongs to an installed package, to border_cli or to Python."""
    return any(  # a package manager may link its files
        _INSTALLED & set(path.parts) or path.is_relative_to(_OURS) or path.is_relative_to(_STANDARD)
        for path in (place.absolute(), place.resolve())
    )


def is_own(place: Path) -> bool:
    """Whether a file or folder is the user's own: neither installed nor in a folder that border_cli
    wrote."""
    return place.is_absolute() and place.exists() and not (is_installed(place) or mark_of(place))


def refuse_standard(module: str, setting: str) -> None:
    """Refuses Python's own modules: to import `idlelib.idle`, say, is to run a program."""
    if module.partition(".")[0] in {*sys.stdlib_module_names, "test"}:
        raise ConfigError(
            f"{setting}: {module!r} is part of Python's standard library, which has no components"
        )


def may_import(module: str, run_dir: Path) -> bool:
    """Whether the settings of a run may import a module: the user's own, or one of a package with
    environments. Imports its parent packages, each after its own check."""
    for name in accumulate(module.split("."), "{}.{}".format):
        if name in sys.modules and "__main__" not in name:
            continue  # a second import runs nothing
        places = _places_of(name)
        real = [place.resolve() for place in places]
        # A package that contains the run came with it.
        near = any(run_dir.is_relative_to(each) or each.is_relative_to(run_dir) for each in real)
        allowed = all(map(is_own, places)) or _has_environments(module.partition(".")[0])
        if near or not (places and allowed):
            return False
    return True


def _places_of(name: str) -> list[Path]:
    """The files and folders from which an import would load a module; empty for a `__main__`."""
    if "__main__" in name.split("."):
        return []
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):  # its parent is no package
        return []
    places = [spec.origin, *(spec.submodule_search_locations or ())] if spec else []
    return [Path(place) for place in places if place]


def _has_environments(package: str) -> bool:
    """Whether an installed package requires Gymnasium or border_cli, or declares environments or
    plug-ins."""
    found = map(distribution, packages_distributions().get(package, ()))
    return package in _WITH_ENVIRONMENTS or any(
        any(map(_REQUIREMENT.fullmatch, each.requires or ()))
        or any(point.group in (PLUGINS, "gymnasium.envs") for point in each.entry_points)
        for each in found
    )
