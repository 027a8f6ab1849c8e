"""The code of a run that its nodes may not have: modules of the user's own, sent to them.

Only the modules that settings name travel (`imports`, plug-ins, those before a colon, those that
the recipe of an actor refers to), and what they import from the same folder; never installed
packages. Ray packs them. A Ray that is started here needs nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from border_cli.errors import ClusterRefused
from border_cli.system.foreign import is_installed

# What Ray leaves out of the folders that travel, besides what their `.gitignore` names.
EXCLUDED = ("outputs", "multirun", "node_modules", "__pycache__", "venv", ".?*")


def travelling(names: Iterable[str]) -> list[str]:
    """The paths of the user's own modules among these, and of those that they imported from their
    folders.

    All are imported already, here where the run was composed.
    """
    tops = {name.partition(".")[0] for name in names}
    if "__main__" in tops:
        raise ClusterRefused(
            "actor_manager=ray: the script that was started cannot be imported on other machines: "
            "move what actors use from it into a module, and name that in imports"
        )
    named = {place for name in tops if (place := _own_place(name)) is not None}
    loaded = {place for name in list(sys.modules) if (place := _own_place(name)) is not None}
    homes = {place.parent for place in named}
    return sorted(str(each) for each in named | loaded if each.parent in homes)


def runtime_env(modules: Sequence[str]) -> dict[str, Any] | None:
    """Ray's `runtime_env` with which the modules travel; None where there are none."""
    return {"py_modules": list(modules), "excludes": list(EXCLUDED)} if modules else None


def _own_place(name: str) -> Path | None:
    """Where a module of the user's own lies, a file or the folder of a package; None if it is
    installed, part of a package, or no file of Python."""
    module = sys.modules.get(name)
    if module is None or "." in name or name in ("__main__", "__mp_main__"):
        return None
    folders = list(getattr(module, "__path__", []))
    place = folders[0] if folders else getattr(module, "__file__", None)
    if not place or not (folders or str(place).endswith(".py")):
        return None
    return None if is_installed(Path(place)) else Path(place).absolute()
