"""Removes runs, and checkpoints that are no longer needed.

A directory is changed only if one of its files has content that only `border_cli` writes. In it,
only files with names in the layout and directories left empty are removed. Nothing is removed if a
run may be running, or if a link stands in place of a file or directory of the layout. The lock of
the run is held, so that no process starts there meanwhile.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from border_cli.errors import ConfigError
from border_cli.run.finding import CompleteCheckpoint, by_age, is_complete
from border_cli.run.folders import named_chunks, restore_folders, rotate, surplus
from border_cli.run.layout import (
    CHECKPOINT,
    RUN,
    SWEEP,
    Kind,
    Layout,
    layout_entries,
    refuse_foreign,
)
from border_cli.run.lock import RUN_LOCK, RunLock, running
from border_cli.run.manifest import REPLAY_FOLDER, verify
from border_cli.run.status import RUN_JSON, read_run
from border_cli.run.sweep_folder import read_sweep
from border_cli.system.files import SETTINGS, read_bytes_or_empty

LAST = (".hydra", RUN_JSON, RUN_LOCK)  # removed last, because they identify a run


@contextmanager
def idle(run_dir: Path) -> Iterator[None]:
    """Within the block, no process is running in the directory and none can start.

    Raises the errors of `refuse_removal`.
    """
    refuse_removal(run_dir)
    with RunLock(run_dir):
        yield


def refuse_removal(run_dir: Path) -> None:
    """Raises `ConfigError` if a run may be running, if the directory is a link or was written by
    another program, or if a link has the name of a file or directory in the layout."""
    if run_dir.is_symlink():
        raise ConfigError(f"{run_dir} is a link to {run_dir.resolve()}: name that directory")
    refuse_foreign(run_dir)
    facts = read_run(run_dir)
    recorded = any("from_opt_steps" in attempt for attempt in facts.get("attempts", []))
    if not recorded and b"/schema/run@_here_" not in read_bytes_or_empty(run_dir / SETTINGS):
        raise ConfigError(
            f"{run_dir} is left as it is: neither {RUN_JSON} nor {SETTINGS} is from border_cli"
        )
    host, ended = facts.get("host"), facts.get("ended")
    with running(run_dir) as is_running:
        if is_running:
            raise ConfigError(f"{run_dir} is running: process {facts.get('pid')} on {host}")
    if facts and not ended and (is_running is None or host != platform.node()):
        raise ConfigError(
            f"{run_dir} may be running on {host}, which cannot be checked from here: run the "
            "command there, or delete the directory itself"
        )


def nbytes_of(folder: Path, layout: Layout = RUN) -> int:
    """Returns how many bytes are freed by removing the files in the layout."""
    files = (entry for entry, kind in layout_entries(folder, layout) if kind == "file")
    return sum(file.stat(follow_symlinks=False).st_size for file in files)


def remove_run(run_dir: Path) -> bool:
    """Removes a run; returns False if other files remain in its directories.

    Raises the errors of `refuse_removal`, and `OSError` if something cannot be removed.
    """
    with idle(run_dir):
        _remove_files(run_dir, RUN)
    return _rmdir(run_dir)


def remove_sweep(root: Path) -> bool:
    """Removes the files of a sweep and of all its jobs, called when only records of jobs that did
    not start are left. Returns False if the directory is not empty afterwards or is a link, or if
    it has no `sweep.json` from border_cli."""
    plan = read_sweep(root)
    if root.is_symlink() or plan is None:
        return False
    for folder in [root / job.folder for job in plan.jobs]:
        if read_run(folder):
            remove_run(folder)
    _remove_files(root, SWEEP)
    return _rmdir(root)


def _remove_files(folder: Path, layout: Layout) -> None:
    """Removes the files in the layout, and directories in the layout that are left empty."""

    def order(item: tuple[os.DirEntry[str], Kind]) -> int:
        name = Path(item[0].path).relative_to(folder).parts[0]
        return LAST.index(name) if name in LAST else -1

    inside_out = [*layout_entries(folder, layout)][::-1]
    for entry, kind in sorted(inside_out, key=order):
        if kind == "folder":
            _rmdir(Path(entry.path))
        else:
            Path(entry.path).unlink()  # removes a link itself, not its target


def _rmdir(folder: Path) -> bool:
    """Removes a directory if it is empty, and returns whether it is gone."""
    with suppress(OSError):
        folder.rmdir()
    return not folder.exists()


@dataclass(frozen=True, slots=True)
class Surplus:
    """The number and size of the checkpoints that pruning would remove from a run."""

    checkpoints: int
    nbytes: int  # including transitions that none of the newest checkpoints uses


def surplus_of(run_dir: Path, *, keep: int, milestone_interval: int) -> Surplus:
    """Counts the checkpoints beyond the newest `keep`, excluding the best model and milestones.

    If there is something to remove, raises `BorderError` if one of the newest checkpoints (with
    `keep=0`: the best model) is damaged or missing.
    """
    folder = run_dir / "checkpoints"
    checkpoints = by_age(folder)
    removable = surplus(checkpoints, keep=keep, milestone_interval=milestone_interval)
    first = max(0, len(checkpoints) - keep)
    older, newest = checkpoints[:first], checkpoints[first:]
    loses_rows = any(checkpoint.manifest and checkpoint.manifest.replay for checkpoint in older)
    if removable or (newest and loses_rows):  # milestones lose their transitions
        _refuse_no_valid_checkpoint(run_dir, newest)
    needed = named_chunks(newest)
    chunks = [path for path in (folder / REPLAY_FOLDER).glob("rows-*") if path.name not in needed]
    nbytes = sum(nbytes_of(checkpoint.folder, CHECKPOINT) for checkpoint in removable)
    return Surplus(len(removable), nbytes + sum(chunk.stat().st_size for chunk in chunks))


def _refuse_no_valid_checkpoint(run_dir: Path, newest: list[CompleteCheckpoint]) -> None:
    best = run_dir / "best"
    if not newest and not is_complete(best):
        raise ConfigError(
            f"{run_dir} is left as it is: it has no best model, so no checkpoint would remain"
        )
    for folder in [checkpoint.folder for checkpoint in newest] or [best]:
        verify(folder)


def prune(run_dir: Path, *, keep: int, milestone_interval: int) -> None:
    """Removes what `surplus_of` counts. Raises the errors of `surplus_of` and `refuse_removal`."""
    with idle(run_dir):
        folder = run_dir / "checkpoints"
        restore_folders(folder)  # finishes what a killed process left incomplete
        surplus_of(run_dir, keep=keep, milestone_interval=milestone_interval)  # repeat the checks
        rotate(folder, keep=keep, milestone_interval=milestone_interval)
        latest = folder / "latest"
        if latest.is_symlink() and not latest.exists():
            latest.unlink()
