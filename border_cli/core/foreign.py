"""What other people's run directories must not do: be imported from, start programs of Python, or
control a terminal.

A closed folder, with links resolved, serves no import: not as the current directory, as an entry of
`sys.path`, as a part of an enclosing package, as a Hydra plug-in or as an installed package; nor in
child processes, which are started without the current directory on their path.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from importlib.machinery import ModuleSpec
from pathlib import Path
from threading import RLock
from typing import Any

from border_cli.core.errors import ConfigError
from border_cli.core.words import visible

_changing = RLock()
_closed: list[str] = []  # real paths; one that is closed twice is here twice


class _Guarded:
    """An entry of `sys.meta_path` that finds nothing in a closed folder, links seen through."""

    def __init__(self, finder: Any) -> None:
        self.finder = finder

    def __getattr__(self, name: str) -> Any:
        return getattr(self.finder, name)

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: Any = None
    ) -> ModuleSpec | None:
        """What the finder finds elsewhere, behind what it would find in a closed folder."""
        found = self.finder.find_spec(name, path, target)
        spec = _outside(found)
        if found is None or spec is not None:
            return spec
        entries = sys.path if path is None else path
        specs = (_outside(self.finder.find_spec(name, [each], target)) for each in entries)
        return next(filter(None, specs), None)

    def find_distributions(self, *asked: Any) -> Iterator[Any]:
        """Installed packages, whose plug-ins are called: none that lies in a closed folder."""
        found = getattr(self.finder, "find_distributions", None)
        for each in found(*asked) if found else ():
            if not is_closed(str(getattr(each, "_path", ""))):
                yield each


def _outside(spec: ModuleSpec | None) -> ModuleSpec | None:
    """None where a module lies in a closed folder; of a namespace package the parts that do not."""
    if spec is None or (spec.has_location and is_closed(str(spec.origin))):
        return None
    if spec.has_location or spec.submodule_search_locations is None:
        return spec
    places = list(spec.submodule_search_locations)
    outside = [each for each in places if not is_closed(each)]
    if outside != places:
        spec.submodule_search_locations = outside
    return spec if outside or not places else None


def is_closed(place: str) -> bool:
    """Whether a path is a closed folder or lies in one; an empty one is the current directory."""
    if not _closed:
        return False
    real = f"{os.path.realpath(place)}{os.sep}"
    return any(real.startswith(f"{each.rstrip(os.sep)}{os.sep}") for each in _closed)


def closed() -> list[str]:
    """The folders that are closed at present, for a child process."""
    return list(dict.fromkeys(_closed))


def close(folders: Iterable[str | Path]) -> None:
    """Closes folders permanently: nothing in them can be imported any more."""
    for each in folders:
        _close(each)


def _close(folder: str | Path) -> tuple[str, list[tuple[int, str]]]:
    """The folder as it is kept, and what left `sys.path` with its place there, the last first."""
    with _changing:
        real = os.path.realpath(folder)
        _closed.append(real)
        sys.meta_path[:] = [
            each if isinstance(each, _Guarded) else _Guarded(each) for each in sys.meta_path
        ]
        places = [i for i, each in enumerate(sys.path) if is_closed(each)]
        return real, [(place, sys.path.pop(place)) for place in reversed(places)]


@contextmanager
def nothing_imported_from(folder: Path) -> Iterator[None]:
    """Within the block no import finds a module in `folder`, under any name.

    Not from `sys.path`, nor as part of a package around it, nor through a link. What is imported
    already stays. Child processes do the same, see `closed`.
    """
    real, left = _close(folder)
    try:
        yield
    finally:
        with _changing:
            _closed.remove(real)
            for place, entry in reversed(left):
                sys.path.insert(place, entry)
            if not _closed:
                sys.meta_path[:] = [
                    each.finder if isinstance(each, _Guarded) else each for each in sys.meta_path
                ]


def refuse_standard(module: str, setting: str) -> None:
    """Refuses Python's own modules: to import `idlelib.idle`, say, is to run a program."""
    if module.partition(".")[0] in {*sys.stdlib_module_names, "test"}:
        raise ConfigError(
            f"{setting}: {module!r} is part of Python's standard library, which has no components"
        )


def complain(command: str, message: object) -> None:
    """Writes to standard error what a command refuses or reports."""
    sys.stderr.write(visible(f"{command}: {message}\n"))
