"""Modules of the user that register components, wherever `imports` is written, and those that a
saved run names.

The modules of a saved run can execute code, so they come only from the user's own Python: already
imported modules, the current directory, `$PYTHONPATH`, installed packages. All are located before
the first is imported. The run chooses the names, so it can pick any module available there.
"""

from __future__ import annotations

import glob
import importlib
import shlex
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from itertools import accumulate
from pathlib import Path
from typing import Any

from border_cli.config.sources import shown
from border_cli.core.errors import ConfigError, place_of
from border_cli.core.foreign import is_closed, nothing_imported_from, refuse_standard


def names_in(value: object) -> list[str]:
    """The modules that a value of `imports` names: none, one, or a list."""
    if value is None:
        return []
    if isinstance(value, str) or not isinstance(value, Iterable):
        return [str(value)]
    return [str(each) for each in value]


def import_modules(names: Sequence[str]) -> None:
    """Imports each; a module that is missing or fails refuses the settings that name it."""
    for name in names:
        refuse_standard(name, "imports")
        try:
            importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name is not None and (name + ".").startswith(error.name + "."):
                raise ConfigError(
                    f"imports: there is no module {name!r} in {Path.cwd()} or among the "
                    "installed packages"
                ) from error
            raise ConfigError(
                f"imports: {name!r} needs {error.name!r}: {place_of(error)}"
            ) from error
        except ConfigError:
            raise
        except Exception as error:
            raise ConfigError(f"imports: {name!r} failed: {place_of(error)}") from error


def add_to_path(folders: Sequence[str]) -> None:
    """Puts folders at the end of sys.path: console scripts do not search the current directory."""
    sys.path.extend(folder for folder in folders if folder not in sys.path)


@contextmanager
def modules_of_a_run(run_dir: Path, recorded: Sequence[str], *, trust: bool) -> Iterator[None]:
    """Within the block the modules of a saved run are found where the user's own Python finds any:
    in the current directory, on $PYTHONPATH, among the installed packages. None comes out of the
    run directory.

    With `trust` they are found there, too, and in `recorded`, the folders in which the run found
    them. What the block adds to sys.path is removed after it.
    """
    with nullcontext() if trust else nothing_imported_from(run_dir):
        # The current directory comes last: a module of the same name there is another one.
        wanted = [*(recorded if trust else ()), str(Path.cwd())]
        added = [each for each in wanted if each not in sys.path and not is_closed(each)]
        add_to_path(added)
        try:
            yield
        finally:
            for each in added:
                if each in sys.path:
                    sys.path.remove(each)


def refuse_elsewhere(file: Path, named: Mapping[str, str], recorded: Sequence[str]) -> None:
    """Refuses modules that the user's own Python does not find; imports nothing to find them.

    `named`: each module with the setting of `file` that names it. `recorded`: the folders in which
    the run found its modules.
    """
    for module, setting in named.items():
        refuse_standard(module, f"{shown(str(file))}: {setting}")
        if not _is_found(module):
            raise ConfigError(
                f"{shown(str(file))}: {setting} names the module {module!r}. Modules of a run "
                f"are imported from the current directory ({Path.cwd()}), $PYTHONPATH and the "
                "installed packages alone, never from the run directory, and it is not there; "
                f"nothing was imported.\n{_remedies(module, file.parent.parent, recorded)}"
            )


def _is_found(module: str) -> bool:
    """Whether an import would find it, as far as that is known without importing anything."""
    path: Any = None
    for name in accumulate(module.split("."), "{}.{}".format):
        if name in sys.modules:
            path = getattr(sys.modules[name], "__path__", None)
            continue
        specs = (each.find_spec(name, path) for each in sys.meta_path)
        spec = next(filter(None, specs), None)
        if spec is None:
            return False
        if spec.has_location or spec.submodule_search_locations is None:
            return True  # its own code says what else there is
        path = spec.submodule_search_locations
    return True


def _remedies(module: str, run_dir: Path, recorded: Sequence[str]) -> str:
    """Where the run had found a module, and what to do about it."""
    top = module.partition(".")[0]
    there = [each for each in recorded if any(Path(each).glob(f"{glob.escape(top)}*"))]
    home = Path(there[0] if there else "").resolve()
    trust = "trust=true, typed (from Python: trust=True), imports it from there all the same"
    if there and home.is_relative_to(run_dir.resolve()):
        return f"The run brings it along, in {home}. Where you trust its code: {trust}"
    if there:
        cd = f"cd {shlex.quote(str(home))}"
        return f"The run had found it in {home}. Where you trust that code: {cd}, or {trust}"
    where = ", ".join(recorded) or "it does not say where"
    return (
        f"The run had found its modules elsewhere ({where}). Where you have its code and trust it: "
        "cd to the folder that holds it; trust=true, typed (from Python: trust=True), also looks "
        "where the run says and in the current directory, whatever that is"
    )


def homes(modules: Iterable[str]) -> list[str]:
    """The folders of those modules that are imported by now and are no installed packages, for a
    later process."""
    tops = {module: sys.modules.get(module.partition(".")[0]) for module in modules}
    places = [
        next(iter(getattr(top, "__path__", [])), getattr(top, "__file__", None))
        for top in tops.values()
    ]
    found = dict.fromkeys(str(Path(each).absolute().parent) for each in places if each)
    installed = sysconfig.get_paths().values()
    return [each for each in found if each not in installed]
