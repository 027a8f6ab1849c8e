"""`border-runs rm` and `prune`: list runs and the bytes to remove, ask for confirmation, and remove
the files."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from border_cli.analysis.load import SavedRun, find_runs
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
from border_cli.words import pluralize, size


def remove_runs(folders: Sequence[Path], paths: Sequence[Path], *, agreed: bool) -> None:
    """Removes runs, and the sweep directories among `paths` that have no run left."""

    def remove(folder: Path) -> None:
        if not remove_run(folder):
            complain("border-runs", f"{folder} stays: it has files that border_cli did not write")

    _carry_out(folders, lambda folder: (nbytes_of(folder), ""), remove, agreed=agreed)
    for root in paths:
        if any(root in folder.parents for folder in folders) and not find_runs([root]):
            remove_sweep(root)


def prune_runs(folders: Sequence[Path], *, keep: int, agreed: bool) -> None:
    """Removes the checkpoints of each run except the newest `keep` and milestones."""

    def interval(folder: Path) -> Any:
        return SavedRun(folder).settings.get("checkpoint.milestone_interval", 0)

    def measure(folder: Path) -> tuple[int, str]:
        surplus = surplus_of(folder, keep=keep, milestone_interval=interval(folder))
        return surplus.nbytes, f"{pluralize(surplus.checkpoints, 'checkpoint')}, "

    def remove(folder: Path) -> None:
        prune(folder, keep=keep, milestone_interval=interval(folder))

    _carry_out(folders, measure, remove, agreed=agreed)


def _carry_out(
    folders: Sequence[Path],
    measure: Callable[[Path], tuple[int, str]],
    remove: Callable[[Path], None],
    *,
    agreed: bool,
) -> None:
    """Lists the runs, asks and removes. Reports errors and then exits with status 1.

    `measure` returns the number of bytes to remove from a directory and a description of them.
    """
    failures: list[Exception] = []
    sizes: dict[Path, int] = {}  # bytes to remove by run directory
    lines = []
    for folder in folders:
        with _reporting(failures):
            refuse_removal(folder)
            nbytes, what = measure(folder)
            if nbytes:
                sizes[folder] = nbytes
                lines.append(f"{folder}  {what}{size(nbytes)}")
    for line in lines:
        say(line)
    if not sizes:
        say("nothing to remove")
    elif not agreed and not _agrees(sizes):
        say("nothing was removed")
    else:
        freed = 0
        for folder, nbytes in sizes.items():
            with _reporting(failures):
                remove(folder)
                freed += nbytes
        say(f"freed {size(freed)}")
    if failures:
        sys.exit(1)


@contextmanager
def _reporting(failures: list[Exception]) -> Iterator[None]:
    """Within the block, errors are reported on standard error and appended to `failures`."""
    try:
        yield
    except (BorderError, OSError) as error:
        complain("border-runs", error)
        failures.append(error)


def _agrees(sizes: Mapping[Path, int]) -> bool:
    """Returns whether the user confirms; raises `ConfigError` if there is no terminal."""
    if not sys.stdin.isatty():
        raise ConfigError("standard input is not a terminal: add --yes to remove without asking")
    say(f"remove this from {pluralize(len(sizes), 'run')}, {size(sum(sizes.values()))}? [y/N]")
    return sys.stdin.readline().strip().lower() in ("y", "yes")
