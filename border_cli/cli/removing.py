"""`border-runs rm` and `prune`: what would be removed is listed with its size, then asked about."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from border_cli.analysis.load import Run, find_runs
from border_cli.errors import BorderError, ConfigError
from border_cli.messages import complain, say
from border_cli.run.removal import (
    nbytes_of,
    prune,
    refuse_removal,
    remove_run,
    remove_sweep,
    surplus_of,
)
from border_cli.words import counted, size

MOST_LISTED = 10


@dataclass(frozen=True, slots=True)
class Removal:
    """A removal of files of one run."""

    folder: Path
    nbytes: int
    what: str  # for a list of them
    remove: Callable[[], object]


def remove_runs(folders: Sequence[Path], paths: Sequence[Path], *, agreed: bool) -> None:
    """Removes runs, and of `paths` the directories of sweeps in which no run is left."""

    def planned(folder: Path) -> Removal:
        refuse_removal(folder)
        nbytes = nbytes_of(folder)
        return Removal(folder, nbytes, size(nbytes), partial(_remove, folder))

    _carry_out(folders, planned, agreed=agreed)
    for root in paths:
        if any(root in folder.parents for folder in folders) and not find_runs([root]):
            remove_sweep(root)


def _remove(folder: Path) -> None:
    if not remove_run(folder):
        complain("border-runs", f"{folder} stays, with files that no run has written")


def prune_runs(folders: Sequence[Path], *, keep: str, agreed: bool) -> None:
    """Removes checkpoints beyond the newest `keep`."""
    if not keep.isdecimal():
        raise ConfigError(f"--keep must be an integer of at least 0, got {keep!r}")

    def planned(folder: Path) -> Removal | None:
        refuse_removal(folder)
        settings: Mapping[str, Any] = Run(folder).settings
        interval = settings.get("checkpoint.milestone_interval", 0)
        found = surplus_of(folder, keep=int(keep), milestone_interval=interval)
        if not found.checkpoints and not found.nbytes:
            return None
        what = f"{counted(found.checkpoints, 'checkpoint')}, {size(found.nbytes)}"
        return Removal(
            folder,
            found.nbytes,
            what,
            lambda: prune(folder, keep=int(keep), milestone_interval=interval),
        )

    _carry_out(folders, planned, agreed=agreed)


def _carry_out(
    folders: Sequence[Path], planned: Callable[[Path], Removal | None], *, agreed: bool
) -> None:
    """Lists, asks and removes; a run that is refused or fails is reported, and the status is 1."""
    failures: list[Exception] = []
    found: list[Removal] = []
    for folder in folders:
        with _reported(failures):
            removal = planned(folder)
            found += [removal] if removal is not None else []
    for each in found[:MOST_LISTED]:
        say(f"{each.folder}  {each.what}")
    if len(found) > MOST_LISTED:
        say(f"… and {len(found) - MOST_LISTED:,} more")
    if not found:
        say("nothing to remove")
    elif not agreed and not _agrees(found):
        say("nothing was removed")
    else:
        freed = 0
        for each in found:
            with _reported(failures):
                each.remove()
                freed += each.nbytes
        say(f"freed {size(freed)}")
    if failures:
        sys.exit(1)


@contextmanager
def _reported(failures: list[Exception]) -> Iterator[None]:
    """Within the block what is refused or fails is told on standard error, and noted."""
    try:
        yield
    except (BorderError, OSError) as error:
        complain("border-runs", error)
        failures.append(error)


def _agrees(found: Sequence[Removal]) -> bool:
    """Raises `ConfigError` where nobody can answer."""
    if not sys.stdin.isatty():
        raise ConfigError("nobody can be asked here: add --yes to remove without a question")
    total = size(sum(each.nbytes for each in found))
    say(f"remove this from {counted(len(found), 'run')}, {total}? [y/N]")
    return sys.stdin.readline().strip().lower() in ("y", "yes")
