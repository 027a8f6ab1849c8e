"""`border-runs rm` and `prune`: what would be removed is listed with its size, then asked about."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from border_cli.analysis.load import SavedRun, find_runs
from border_cli.cli.plain_command import shortened
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


def remove_runs(folders: Sequence[Path], paths: Sequence[Path], *, agreed: bool) -> None:
    """Removes runs, and of `paths` the directories of sweeps in which no run is left."""

    def remove(folder: Path) -> None:
        if not remove_run(folder):
            complain("border-runs", f"{folder} stays, with files that no run has written")

    _carry_out(folders, lambda folder: (nbytes_of(folder), ""), remove, agreed=agreed)
    for root in paths:
        if any(root in folder.parents for folder in folders) and not find_runs([root]):
            remove_sweep(root)


def prune_runs(folders: Sequence[Path], *, keep: int, agreed: bool) -> None:
    """Removes checkpoints beyond the newest `keep`."""

    def interval(folder: Path) -> Any:
        return SavedRun(folder).settings.get("checkpoint.milestone_interval", 0)

    def measured(folder: Path) -> tuple[int, str]:
        found = surplus_of(folder, keep=keep, milestone_interval=interval(folder))
        return found.nbytes, f"{counted(found.checkpoints, 'checkpoint')}, "

    def remove(folder: Path) -> None:
        prune(folder, keep=keep, milestone_interval=interval(folder))

    _carry_out(folders, measured, remove, agreed=agreed)


def _carry_out(
    folders: Sequence[Path],
    measured: Callable[[Path], tuple[int, str]],
    remove: Callable[[Path], None],
    *,
    agreed: bool,
) -> None:
    """Lists, asks and removes; a run that is refused or fails is reported, and the status is 1.

    `measured` says how many bytes there are to remove in a directory, and of what.
    """
    failures: list[Exception] = []
    found: dict[Path, int] = {}  # the bytes of each directory
    lines = []
    for folder in folders:
        with _reported(failures):
            refuse_removal(folder)
            nbytes, what = measured(folder)
            if nbytes:
                found[folder] = nbytes
                lines.append(f"{folder}  {what}{size(nbytes)}")
    for line in shortened(lines):
        say(line)
    if not found:
        say("nothing to remove")
    elif not agreed and not _agrees(found):
        say("nothing was removed")
    else:
        freed = 0
        for folder, nbytes in found.items():
            with _reported(failures):
                remove(folder)
                freed += nbytes
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


def _agrees(found: Mapping[Path, int]) -> bool:
    """Raises `ConfigError` where nobody can answer."""
    if not sys.stdin.isatty():
        raise ConfigError("nobody can be asked here: add --yes to remove without a question")
    say(f"remove this from {counted(len(found), 'run')}, {size(sum(found.values()))}? [y/N]")
    return sys.stdin.readline().strip().lower() in ("y", "yes")
