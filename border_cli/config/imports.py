"""Modules of the user that register components, wherever `imports` is written, and those that a
saved run names.

The modules of a saved run can execute code, so they come only from the user's own Python, and never
out of the run directory: already imported modules, the current directory, `$PYTHONPATH`, installed
packages. All are located before the first is imported. The run chooses the names, so it can pick
any module available there.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import accumulate
from pathlib import Path

from border_cli.errors import ConfigError, place_of
from border_cli.system.foreign import keep_runs_off_path, refuse_standard, run_of
from border_cli.words import shortest


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
                    f"installed packages{_where_not()}"
                ) from error
            raise ConfigError(
                f"imports: {name!r} needs {error.name!r}: {place_of(error)}"
            ) from error
        except ConfigError:
            raise
        except Exception as error:
            raise ConfigError(f"imports: {name!r} failed: {place_of(error)}") from error


def _where_not() -> str:
    run_dir = run_of(Path.cwd())
    return f"; nothing is imported from {run_dir}, which is a run directory" if run_dir else ""


def add_to_path(folders: Sequence[str]) -> None:
    """Puts folders at the end of sys.path."""
    sys.path.extend(folder for folder in folders if folder not in sys.path)


def add_current_directory(*, trust: bool) -> None:
    """Puts the current directory at the end of sys.path, since console scripts do not search it: a
    module of the same name there is another one. With `trust` also one that belongs to a run."""
    if trust or run_of(Path.cwd()) is None:
        add_to_path([str(Path.cwd())])


@contextmanager
def modules_of_a_run(recorded: Sequence[str], *, trust: bool) -> Iterator[None]:
    """Within the block the modules of a saved run are found where the user's own Python finds any:
    in the current directory, on $PYTHONPATH, among the installed packages. No run directory is on
    sys.path.

    With `trust` they are found there, too, and in `recorded`, the folders in which the run found
    them. sys.path is as before after it.
    """
    before = list(sys.path)
    if trust:
        add_to_path(recorded)
    else:
        keep_runs_off_path()
    add_current_directory(trust=trust)
    try:
        yield
    finally:
        sys.path[:] = before


def refuse_elsewhere(file: Path, named: Mapping[str, str], recorded: Sequence[str]) -> None:
    """Refuses modules that an import would not find outside of the run directory.

    `named`: each module with the setting of `file` that names it. `recorded`: the folders in which
    the run found its modules.
    """
    run_dir = run_of(file) or file.parent.resolve()
    for module, setting in named.items():
        refuse_standard(module, f"{shortest(file)}: {setting}")
        if not _is_outside(run_dir, module):
            where = ", ".join(recorded) or "it does not say where"
            raise ConfigError(
                f"{shortest(file)}: {setting} names the module {module!r}. Modules of a run "
                f"are imported from the current directory ({Path.cwd()}), $PYTHONPATH and the "
                "installed packages alone, never from the run directory, and it is not there; "
                f"nothing was imported. The run had found its modules in: {where}. Where you have "
                "its code and trust it: cd to the folder that holds it, or trust=true, typed (from "
                "Python: trust=True), which also looks where the run says"
            )


def _is_outside(run_dir: Path, module: str) -> bool:
    """Whether an import would find a module elsewhere than in the run directory; packages around it
    are imported, each once it was found outside."""
    for name in accumulate(module.split("."), "{}.{}".format):
        if name in sys.modules:
            continue
        try:
            spec = importlib.util.find_spec(name)
        except ImportError:  # what is around it is no package
            return False
        places = [spec.origin, *(spec.submodule_search_locations or ())] if spec else [run_dir]
        if any(each and Path(each).resolve().is_relative_to(run_dir) for each in places):
            return False
    return True


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
