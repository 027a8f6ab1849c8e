"""The code of a run that its nodes may not have: modules of the user's own, sent to them.

Only the modules that settings name travel (`imports`, plug-ins, those before a colon, those that
the recipe of an actor refers to), and what they import from the same folder; never installed
packages, run directories or virtual environments. What travels is copied first, so that Ray packs
exactly that. A Ray that is started here needs nothing.
"""

from __future__ import annotations

import io
import os
import pickle
import shutil
import sys
import sysconfig
import types
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from border_cli.core.errors import ClusterRefused

MOST_NBYTES = 50 * 2**20  # the head node keeps it in memory, and every node unpacks it
LARGEST = 3  # files in a refusal

NEVER = ("outputs", "multirun", "node_modules", "__pycache__")  # folders; hidden ones, too
ENVIRONMENT = "pyvenv.cfg"  # in a virtual environment
RUN = "run.json"  # in a run directory


@dataclass(frozen=True, slots=True, kw_only=True)
class Travelling:
    """A module of the user's own that travels."""

    name: str  # without a dot
    path: str  # a file, or the folder of a package


def modules_of_recipe(parts: Any) -> set[str]:
    """The modules whose classes and functions these parts refer to when they are pickled."""
    found: set[str] = set()

    class Finder(pickle.Pickler):
        def persistent_id(self, each: Any) -> None:
            if isinstance(each, type | types.FunctionType):
                found.add(each.__module__)

    Finder(io.BytesIO()).dump(parts)
    return found


def travelling(names: Iterable[str], most_nbytes: int = MOST_NBYTES) -> list[Travelling]:
    """The modules of the user's own among these, and those that they imported from their folders.

    All are imported already, here where the run was composed. Raises ClusterRefused where they are
    too large.
    """
    tops = {name.partition(".")[0] for name in names}
    if "__main__" in tops:
        raise ClusterRefused(
            "actor_manager=ray: the script that was started cannot be imported on other machines: "
            "move what actors use from it into a module, and name that in imports"
        )
    first = {name: place for name in tops if (place := _own_place(name)) is not None}
    homes = {str(Path(place).parent) for place in first.values()}
    beside = {
        name: place
        for name in {each.partition(".")[0] for each in list(sys.modules)}
        if (place := _own_place(name)) is not None and str(Path(place).parent) in homes
    }
    found = [
        Travelling(name=name, path=place) for name, place in sorted({**beside, **first}.items())
    ]
    _refuse_large(found, most_nbytes)
    return found


def runtime_env(modules: Iterable[Travelling], folder: Path) -> dict[str, Any] | None:
    """Ray's `runtime_env` with copies of the modules in `folder`; None where none travel."""
    copies = []
    for module in modules:
        copy = folder / Path(module.path).name
        for source, relative in _files(module):
            target = copy / relative if relative.name else copy
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target)
        copies.append(str(copy))
    return {"py_modules": copies} if copies else None


def _own_place(name: str) -> str | None:
    """Where a module of the user's own lies; None if it is installed, or no file of Python."""
    module = sys.modules.get(name)
    if module is None or name in ("__main__", "__mp_main__", "border_cli"):
        return None
    folders = list(getattr(module, "__path__", []))
    place = folders[0] if folders else getattr(module, "__file__", None)
    if not place or not (folders or str(place).endswith(".py")):
        return None
    real = Path(place).absolute()
    installed = {*sysconfig.get_paths().values(), *_site_folders()}
    if any(real.is_relative_to(each) for each in installed):
        return None
    return str(real)


def _site_folders() -> set[str]:
    """Folders of installed packages besides those of this Python: of layered environments."""
    return {each for each in sys.path if Path(each).name in ("site-packages", "dist-packages")}


def _files(module: Travelling) -> Iterator[tuple[Path, Path]]:
    """The files that travel, each with its path inside the module's folder."""
    top = Path(module.path)
    if top.is_file():
        yield top, Path()
        return
    for place, folders, files in os.walk(top):
        here = Path(place)
        folders[:] = sorted(each for each in folders if _travels(here / each))
        for each in sorted(files):
            if not each.startswith(".") and (here / each).is_file():
                yield here / each, (here / each).relative_to(top)


def _travels(folder: Path) -> bool:
    if folder.name in NEVER or folder.name.startswith("."):
        return False
    return not ((folder / ENVIRONMENT).exists() or (folder / RUN).exists())


def _refuse_large(modules: Iterable[Travelling], most_nbytes: int) -> None:
    sizes = {file: file.stat().st_size for each in modules for file, _ in _files(each)}
    nbytes = sum(sizes.values())
    if nbytes <= most_nbytes:
        return
    largest = sorted(sizes, key=sizes.__getitem__, reverse=True)[:LARGEST]
    shown = ", ".join(f"{each} {sizes[each] / 2**20:,.0f} MB" for each in largest)
    raise ClusterRefused(
        f"imports: {nbytes / 2**20:,.0f} MB would travel to every node, which is more than "
        f"{most_nbytes / 2**20:.0f} MB (largest: {shown}): keep data out of the packages of code, "
        "or install them on the nodes"
    )
