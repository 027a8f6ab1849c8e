"""`border-runs rm` and `prune`: what would be removed is listed with its size, then asked about."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from border_cli.analysis.load import Run, find_runs
from border_cli.core.errors import BorderError, CheckpointError, ConfigError
from border_cli.core.messages import complain, say
from border_cli.core.words import counted, size
from border_cli.run.removal import (
    prune,
    refuse_removal,
    remove_run,
    remove_sweep,
    run_nbytes,
    surplus_of,
)

MOST_LISTED = 10


@dataclass(frozen=True, slots=True)
class Removal:
    """What is removed of one run."""

    run: Run
    nbytes: int
    what: str  # for a list of them
    remove: Callable[[], object]


def remove_runs(runs: Sequence[Run], paths: Sequence[Path], *, agreed: bool) -> None:
    """Removes runs, and of `paths` the directories of sweeps in which no run is left."""

    def planned(run: Run) -> Removal:
        refuse_removal(run.folder)
        nbytes = run_nbytes(run.folder)
        return Removal(run, nbytes, size(nbytes), lambda: _remove(run.folder))

    _carry_out(runs, planned, agreed=agreed)
    for root in paths:
        if any(root in run.folder.parents for run in runs) and not find_runs([root]):
            remove_sweep(root)


def _remove(folder: Path) -> None:
    if not remove_run(folder):
        complain("border-runs", f"{folder} stays, with files that no run has written")


def prune_runs(runs: Sequence[Run], *, keep: str, agreed: bool) -> None:
    """Removes checkpoints beyond the newest `keep`."""
    if not keep.isdecimal():
        raise ConfigError(f"--keep must be an integer of at least 0, got {keep!r}")
    newest = int(keep)

    def planned(run: Run) -> Removal | None:
        refuse_removal(run.folder)
        interval = _milestone_interval(run)
        found = surplus_of(run.folder, keep=newest, milestone_interval=interval)
        if not found.checkpoints and not found.nbytes:
            return None
        what = f"{counted(found.checkpoints, 'checkpoint')}, {size(found.nbytes)}"
        return Removal(
            run,
            found.nbytes,
            what,
            lambda: prune(run.folder, keep=newest, milestone_interval=interval),
        )

    _carry_out(runs, planned, agreed=agreed)


def _milestone_interval(run: Run) -> int:
    """Raises `CheckpointError` where it is unknown: milestones must not be taken for old."""
    interval = run.settings.get("checkpoint.milestone_interval", 0)
    if not isinstance(interval, int) or interval < 0:
        raise CheckpointError(f"{run.folder}: checkpoint.milestone_interval is {interval!r}")
    return interval


def _carry_out(
    runs: Sequence[Run], planned: Callable[[Run], Removal | None], *, agreed: bool
) -> None:
    """Lists, asks and removes; a run that is refused or fails is reported, and the status is 1."""
    failures = Failures()
    removals = []
    for run in runs:
        with failures.reported():
            removals.append(planned(run))
    found = [each for each in removals if each is not None]
    if found:
        _ask_and_remove(found, failures, agreed=agreed)
    else:
        say("nothing to remove")
    if failures.num:
        sys.exit(1)


def _ask_and_remove(found: Sequence[Removal], failures: Failures, *, agreed: bool) -> None:
    for each in found[:MOST_LISTED]:
        say(f"{each.run.folder}  {each.what}")
    if len(found) > MOST_LISTED:
        say(f"… and {len(found) - MOST_LISTED:,} more")
    total = f"{counted(len(found), 'run')}, {size(sum(each.nbytes for each in found))}"
    if not agreed and not _agrees(f"remove this from {total}?"):
        say("nothing was removed")
        return
    freed = 0
    for each in found:
        with failures.reported():
            each.remove()
            freed += each.nbytes
    say(f"freed {size(freed)}")


class Failures:
    """Counts what was refused or failed, and reports it on standard error."""

    def __init__(self) -> None:
        self.num = 0

    @contextmanager
    def reported(self) -> Iterator[None]:
        try:
            yield
        except (BorderError, OSError) as error:
            self.num += 1
            complain("border-runs", error)


def _agrees(question: str) -> bool:
    """Raises `ConfigError` where nobody can answer."""
    if not sys.stdin.isatty():
        raise ConfigError("nobody can be asked here: add --yes to remove without a question")
    say(f"{question} [y/N]")
    return sys.stdin.readline().strip().lower() in ("y", "yes")
