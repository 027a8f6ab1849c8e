"""Functions that select the user's own modules to send to the nodes of a cluster.

Ray packs and sends the modules that the settings refer to (`imports`, plug-ins, names before a
colon, and modules used by the recipe of an actor) and all other imported modules in their folders.
Installed packages are never sent, and nothing is sent if Ray is started on this machine.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from border_cli.errors import ClusterRefused
from border_cli.system.foreign import is_installed

# Patterns of files that Ray does not send, in addition to those in `.gitignore`.
EXCLUDED = ("outputs", "multirun", "node_modules", "__pycache__", "venv", ".?*")


def find_own_modules(names: Iterable[str]) -> list[str]:
    """Returns the paths of the user's own modules among `names`, and of all other imported modules
    in their folders.

    A module that is not imported in this process is not found.
    """
    top_level = {name.partition(".")[0] for name in names}
    if "__main__" in top_level:
        raise ClusterRefused(
            "the script that was started cannot be imported on other machines of the Ray cluster: "
            "move what actors and evaluations use from it into a module, and name that in imports"
        )
    required = {path for name in top_level if (path := _find_path(name)) is not None}
    loaded = {path for name in list(sys.modules) if (path := _find_path(name)) is not None}
    folders = {path.parent for path in required}
    return sorted(str(module) for module in required | loaded if module.parent in folders)


def runtime_env(modules: Sequence[str]) -> dict[str, Any] | None:
    """Returns a `runtime_env` with which Ray sends the modules, or None if there are none."""
    return {"py_modules": list(modules), "excludes": list(EXCLUDED)} if modules else None


def _find_path(name: str) -> Path | None:
    """Returns the file of a module of the user's own, or the folder of such a package.

    Returns None if the module is installed, part of a package, or not a Python file."""
    module = sys.modules.get(name)
    if module is None or "." in name or name in ("__main__", "__mp_main__"):
        return None
    folders = list(getattr(module, "__path__", []))
    path = folders[0] if folders else getattr(module, "__file__", None)
    if not path or not (folders or str(path).endswith(".py")):
        return None
    return None if is_installed(Path(path)) else Path(path).absolute()
