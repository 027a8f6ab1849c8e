"""Rules for folders that border_cli wrote, which may come from somebody else. No modules or
plug-ins are loaded from them. Their settings may import only the user's own modules and packages
with environments."""

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
from border_cli.system.files import (
    POLICY_JSON,
    SETTINGS,
    STUDY_JSON,
    SWEEP_JSON,
    read_bytes_or_empty,
)

MARKS: Final = (str(SETTINGS), SWEEP_JSON, STUDY_JSON, POLICY_JSON)
MOST_ABOVE: Final = 3  # levels above a folder in which a mark counts
POLICY: Final = b"border_cli policy"  # format name in all our policy.json files
PLUGINS: Final = "border_cli.plugins"  # entry point group

_OURS, _STANDARD = Path(__file__).parents[1], Path(os.__file__).parent
_INSTALLED = {"site-packages", "dist-packages"}
_WITH_ENVIRONMENTS = {"gymnasium", "border_cli", "ale_py"}  # ale_py requires it only for extras
_REQUIREMENT = re.compile(r"(?i)(gymnasium|border[-_.]cli)(?![\w.-])[^;]*(;(?!.*\bextra\b).*)?")


def find_mark(location: Path) -> Path | None:
    """Returns the file that marks a folder as written by border_cli, in the folder or up to three
    levels above; None if there is none."""
    resolved = location.resolve()
    for folder in (resolved, *resolved.parents)[: 1 + MOST_ABOVE]:
        for path in [folder / mark for mark in MARKS]:
            ours = path.name != POLICY_JSON or POLICY in read_bytes_or_empty(path)
            if ours and os.path.isfile(path):  # noqa: PTH113 - Path.is_file raises if denied
                return path
    return None


def keep_written_folders_off_path() -> Path | None:
    """Removes folders that border_cli wrote from `sys.path`, including the current directory.
    Returns the mark of the current directory.

    Child processes inherit the `sys.path` of their parent.
    """
    sys.path[:] = [
        entry for entry in sys.path if is_installed(Path(entry)) or not find_mark(Path(entry))
    ]
    return find_mark(Path.cwd())


def is_installed(location: Path) -> bool:
    """Returns whether a path belongs to an installed package, to border_cli or to Python."""
    return any(  # a package manager may use symbolic links
        _INSTALLED & set(path.parts) or path.is_relative_to(_OURS) or path.is_relative_to(_STANDARD)
        for path in (location.absolute(), location.resolve())
    )


def is_own(path: Path) -> bool:
    """Returns whether a path is the user's own: not installed, and not in a folder that border_cli
    wrote."""
    return path.is_absolute() and path.exists() and not (is_installed(path) or find_mark(path))


def refuse_standard(module: str, setting: str) -> None:
    """Refuses Python's own modules: importing one can start a program, such as `idlelib.idle`."""
    if module.partition(".")[0] in {*sys.stdlib_module_names, "test"}:
        raise ConfigError(
            f"{setting}: {module!r} is part of Python's standard library, which has no components"
        )


def may_import(module: str, run_dir: Path) -> bool:
    """Returns whether the settings of a run may import a module: the user's own, or one of a
    package with environments. Imports its parent packages after checking each of them."""
    for name in accumulate(module.split("."), "{}.{}".format):
        if name in sys.modules and "__main__" not in name:
            continue  # importing it again runs no code
        locations = _find_locations(name)
        paths = [location.resolve() for location in locations]
        # A package that contains the run, or lies in it, came with the run.
        near = any(run_dir.is_relative_to(path) or path.is_relative_to(run_dir) for path in paths)
        allowed = all(map(is_own, locations)) or _has_environments(module.partition(".")[0])
        if near or not (locations and allowed):
            return False
    return True


def _find_locations(name: str) -> list[Path]:
    """Returns the paths from which an import would load a module; empty for a `__main__`."""
    if "__main__" in name.split("."):
        return []
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):  # its parent is not a package
        return []
    locations = [spec.origin, *(spec.submodule_search_locations or ())] if spec else []
    return [Path(location) for location in locations if location]


def _has_environments(package: str) -> bool:
    """Returns whether an installed package requires Gymnasium or border_cli, or declares
    environments or plug-ins."""
    distributions = map(distribution, packages_distributions().get(package, ()))
    return package in _WITH_ENVIRONMENTS or any(
        any(map(_REQUIREMENT.fullmatch, package_info.requires or ()))
        or any(point.group in (PLUGINS, "gymnasium.envs") for point in package_info.entry_points)
        for package_info in distributions
    )
