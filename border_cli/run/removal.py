"""Removing runs, and checkpoints that are no longer needed.

A directory is touched only if a file in it has what only `border_cli` writes there. Of it, files
with names of ours are removed, and directories that are empty then; never of a run that is, or may
be, running, nor where a link of others has a name of ours. The lock of a run is held meanwhile, so
that no process begins there.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from border_cli.errors import ConfigError
from border_cli.run.finding import Kept, by_age, is_complete
from border_cli.run.folders import named_chunks, restore_folders, rotate, surplus
from border_cli.run.layout import (
    CHECKPOINT,
    RUN,
    SWEEP,
    Kind,
    Layout,
    entries_of_ours,
    refuse_foreign,
)
from border_cli.run.lock import RUN_LOCK, RunLock, running
from border_cli.run.manifest import FOLDER, verify
from border_cli.run.status import RUN_JSON, read_run
from border_cli.run.sweep_folder import read_sweep
from border_cli.system.files import SETTINGS, readable_bytes

LAST = (".hydra", RUN_JSON, RUN_LOCK)  # what a run is known by goes when all else has gone


@contextmanager
def idle(run_dir: Path) -> Iterator[None]:
    """Within the block no process runs in the directory, and none can begin to.

    Raises as `refuse_removal`.
    """
    refuse_removal(run_dir)
    with RunLock(run_dir):
        yield


def refuse_removal(run_dir: Path) -> None:
    """Raises `ConfigError` where a run is, or may be, running, where its directory is a link or
    another program's, or where a link is in the place of a file or directory of ours."""
    if run_dir.is_symlink():
        raise ConfigError(f"{run_dir} is a link to {run_dir.resolve()}: name that directory")
    refuse_foreign(run_dir)
    facts = read_run(run_dir)
    recorded = any("from_opt_steps" in each for each in facts.get("attempts", []))
    if not recorded and b"/schema/run@_here_" not in readable_bytes(run_dir / SETTINGS):
        raise ConfigError(
            f"{run_dir} is left as it is: neither {RUN_JSON} nor {SETTINGS} is from border_cli"
        )
    host, ended = facts.get("host"), facts.get("ended")
    with running(run_dir) as runs:
        if runs:
            raise ConfigError(f"{run_dir} is running: process {facts.get('pid')} on {host}")
    if facts and not ended and (runs is None or host != platform.node()):
        raise ConfigError(
            f"{run_dir} may be running on {host}, which cannot be checked from here: run the "
            "command there, or delete the directory itself"
        )


def nbytes_of(folder: Path, layout: Layout = RUN) -> int:
    """The bytes that removing what is ours in a folder frees."""
    files = (each for each, kind in entries_of_ours(folder, layout) if kind == "file")
    return sum(each.stat(follow_symlinks=False).st_size for each in files)


def remove_run(run_dir: Path) -> bool:
    """Removes a run; False where other files were found, which stay with their directories.

    Raises as `refuse_removal`, and `OSError` where something cannot be removed.
    """
    with idle(run_dir):
        _remove_files(run_dir, RUN)
    return _rmdir(run_dir)


def remove_sweep(root: Path) -> bool:
    """Removes what a sweep wrote beside its jobs, and the records of jobs that did not begin; False
    where the directory is not empty then, or where `sweep.json` is not from border_cli."""
    plan = read_sweep(root)
    if root.is_symlink() or plan is None:
        return False
    for folder in [root / job.folder for job in plan.jobs]:
        if read_run(folder):
            remove_run(folder)
    _remove_files(root, SWEEP)
    return _rmdir(root)


def _remove_files(folder: Path, layout: Layout) -> None:
    """Removes what is ours, and directories of ours that are empty then."""

    def turn(found: tuple[os.DirEntry[str], Kind]) -> int:
        name = Path(found[0].path).relative_to(folder).parts[0]
        return LAST.index(name) if name in LAST else -1

    inside_out = [*entries_of_ours(folder, layout)][::-1]
    for entry, kind in sorted(inside_out, key=turn):
        if kind == "folder":
            _rmdir(Path(entry.path))
        else:
            Path(entry.path).unlink()  # a link itself, not what it leads to


def _rmdir(folder: Path) -> bool:
    """Removes a directory where it is empty."""
    with suppress(OSError):
        folder.rmdir()
    return not folder.exists()


@dataclass(frozen=True, slots=True)
class Surplus:
    """The checkpoints and bytes that pruning would remove from a run."""

    checkpoints: int
    nbytes: int  # of them, and of transitions that no other checkpoint needs


def surplus_of(run_dir: Path, *, keep: int, milestone_interval: int) -> Surplus:
    """The checkpoints beyond the newest `keep`, but for the best model and milestones.

    Raises `BorderError` where what would stay is damaged, or would be nothing.
    """
    folder = run_dir / "checkpoints"
    kept = by_age(folder)
    gone = surplus(kept, keep=keep, milestone_interval=milestone_interval)
    newest = kept[max(0, len(kept) - keep) :]
    if gone:
        _refuse_nothing_whole(run_dir, newest)
    needed = named_chunks(newest)
    chunks = [each for each in (folder / FOLDER).glob("rows-*") if each.name not in needed]
    nbytes = sum(nbytes_of(each.folder, CHECKPOINT) for each in gone)
    return Surplus(len(gone), nbytes + sum(each.stat().st_size for each in chunks))


def _refuse_nothing_whole(run_dir: Path, newest: list[Kept]) -> None:
    best = run_dir / "best"
    if not newest and not is_complete(best):
        raise ConfigError(f"{run_dir} is left as it is: it has no best model, so none would stay")
    for folder in [each.folder for each in newest] or [best]:
        verify(folder)


def prune(run_dir: Path, *, keep: int, milestone_interval: int) -> None:
    """Removes what `surplus_of` counts; raises the same, and as `refuse_removal`."""
    with idle(run_dir):
        folder = run_dir / "checkpoints"
        restore_folders(folder)  # what a killed process left half done
        surplus_of(run_dir, keep=keep, milestone_interval=milestone_interval)  # may raise by now
        rotate(folder, keep=keep, milestone_interval=milestone_interval)
        latest = folder / "latest"
        if latest.is_symlink() and not latest.exists():
            latest.unlink()
