"""Removing runs, and checkpoints that are no longer needed.

A directory is touched only if a file in it has what only `border_cli` writes there. Of it, files
with names of ours are removed, and directories that are empty then; never of a run that is, or may
be, running, nor where a link of others has a name of ours. The lock of a run is held meanwhile, so
that no process begins there.
"""

from __future__ import annotations

import os
import platform
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from border_cli.core.errors import CheckpointError, ConfigError
from border_cli.core.files import SETTINGS, readable_bytes
from border_cli.run.finding import Kept, by_age, is_complete
from border_cli.run.folders import (
    named_chunks,
    remove_folder,
    restore_folders,
    rotate,
    surplus,
)
from border_cli.run.layout import (
    CHECKPOINT,
    RUN,
    SWEEP,
    Layout,
    entries_of_ours,
    refuse_foreign,
)
from border_cli.run.manifest import FOLDER, verify
from border_cli.run.status import RUN_JSON, RUN_LOCK, RunLock, read_run, running
from border_cli.run.sweep_folder import read_sweep

_TORN = r"|\.[\w.-]+\.[0-9a-f]{8}\.tmp"  # left by a process that was killed as it wrote a file


def _with_torn(layout: Layout) -> Layout:
    inner = {name: _with_torn(each) for name, each in layout.folders.items()}
    links = rf"{layout.links}|\.({layout.links})\.tmp" if layout.links else ""
    return Layout(files=layout.files + _TORN, links=links, folders=inner)


REMOVABLE = _with_torn(RUN)
LAST = (".hydra", RUN_JSON, RUN_LOCK)  # what a run is known by goes when all else has gone


class NotRemovable(ConfigError):
    """A run is, or may be, running, or a directory is not that of a run."""


@contextmanager
def idle(run_dir: Path) -> Iterator[None]:
    """Within the block no process runs in the directory, and none can begin to.

    Raises as `refuse_removal`.
    """
    refuse_removal(run_dir)
    lock = RunLock(run_dir)
    try:
        lock.__enter__()
    except ConfigError as error:
        raise NotRemovable(str(error)) from error
    try:
        yield
    finally:
        lock.__exit__()


def refuse_removal(run_dir: Path) -> None:
    """Raises `NotRemovable` where a run is running, where its directory is a link or another
    program's, or where that it has ended cannot be told from here; `ConfigError` where a link is in
    the place of a file or directory of ours."""
    if run_dir.is_symlink():
        raise NotRemovable(f"{run_dir} is a link to {run_dir.resolve()}: name that directory")
    refuse_foreign(run_dir)
    facts = read_run(run_dir)
    recorded = any("from_opt_steps" in each for each in facts.get("attempts", []))
    if not recorded and b"/schema/run@_here_" not in readable_bytes(run_dir / SETTINGS):
        raise NotRemovable(
            f"{run_dir} is left as it is: neither {RUN_JSON} nor {SETTINGS} is from border_cli"
        )
    host, open_end = facts.get("host"), facts.get("status") in ("running", "killed")
    with running(run_dir) as runs:
        if runs:
            raise NotRemovable(f"{run_dir} is running: process {facts.get('pid')} on {host}")
    if runs is None and open_end:
        raise NotRemovable(f"{run_dir} may be running: its file system has no locks")
    if open_end and not facts.get("ended") and host != platform.node():
        raise NotRemovable(
            f"{run_dir} may be running on {host}, which cannot be checked from here: run the "
            "command there, or delete the directory itself"
        )


def run_nbytes(run_dir: Path) -> int:
    """What removing a run frees."""
    return sum(_nbytes(entry) for entry, kind in entries_of_ours(run_dir, REMOVABLE))


def _nbytes(entry: os.DirEntry[str]) -> int:
    with suppress(OSError):
        found = entry.stat(follow_symlinks=False)
        if stat.S_ISREG(found.st_mode) and found.st_nlink == 1:
            return found.st_size
    return 0


def remove_run(run_dir: Path) -> bool:
    """Removes a run; False where other files were found, which stay with their directories.

    Raises as `refuse_removal`, and `OSError` where something cannot be removed.
    """
    with idle(run_dir):
        _remove_files(run_dir, REMOVABLE)
    return _rmdir(run_dir)


def remove_sweep(root: Path) -> bool:
    """Removes what a sweep wrote beside its jobs; False where the directory is not empty then, or
    where `sweep.json` is not from border_cli."""
    if root.is_symlink() or read_sweep(root) is None:
        return False
    _remove_files(root, _with_torn(SWEEP))
    return _rmdir(root)


def _remove_files(folder: Path, layout: Layout) -> None:
    """Removes what is ours, and directories of ours that are empty then."""

    def turn(entry: os.DirEntry[str]) -> int:
        name = Path(entry.path).relative_to(folder).parts[0]
        return LAST.index(name) if name in LAST else -1

    inside_out = [*entries_of_ours(folder, layout)][::-1]
    for entry, kind in sorted(inside_out, key=lambda each: turn(each[0])):
        if kind == "folder":
            _rmdir(Path(entry.path))
        else:
            Path(entry.path).unlink()  # a link itself, not what it leads to


def _rmdir(folder: Path) -> bool:
    """Removes a directory where it is empty."""
    try:
        folder.rmdir()
    except OSError:
        return False
    return True


@dataclass(frozen=True, slots=True)
class Surplus:
    """What pruning would remove from a run."""

    checkpoints: int  # with the models that were the best before
    nbytes: int  # of them, and of transitions that no other checkpoint needs


def surplus_of(run_dir: Path, *, keep: int, milestone_interval: int) -> Surplus:
    """The checkpoints beyond the newest `keep`, but for the best model and milestones.

    Raises as `refuse_removal`, and `NotRemovable` where the run would keep nothing whole.
    """
    refuse_removal(run_dir)
    return _surplus(run_dir, keep, milestone_interval)


def _surplus(run_dir: Path, keep: int, milestone_interval: int) -> Surplus:
    folder = run_dir / "checkpoints"
    if not folder.is_dir():
        return Surplus(0, 0)
    kept = by_age(folder)
    gone = surplus(kept, keep=keep, milestone_interval=milestone_interval)
    newest = kept[max(0, len(kept) - keep) :]
    if gone:
        _refuse_nothing_whole(run_dir, newest)
    old = [*(each.folder for each in gone), *_models_before_best(run_dir)]
    entries = [entry for each in old for entry, _ in entries_of_ours(each, CHECKPOINT)]
    return Surplus(len(old), sum(map(_nbytes, [*entries, *_unneeded_chunks(folder, newest)])))


def _refuse_nothing_whole(run_dir: Path, newest: list[Kept]) -> None:
    """Nothing is removed where what would stay is damaged, or would be nothing."""
    best = run_dir / "best"
    if not newest and not is_complete(best):
        raise NotRemovable(f"{run_dir} is left as it is: it has no best model, so none would stay")
    try:
        for folder in [each.folder for each in newest] or [best.resolve()]:
            verify(folder)
    except CheckpointError as error:
        raise NotRemovable(f"{run_dir} is left as it is: {error}") from error


def _models_before_best(run_dir: Path) -> list[Path]:
    best, folder = (run_dir / "best").resolve(), run_dir / "checkpoints"
    models = [each for each in folder.iterdir() if re.fullmatch(r"best-\d{10,}", each.name)]
    return [each for each in models if is_complete(best) and each.resolve() != best]


def _unneeded_chunks(folder: Path, newest: list[Kept]) -> list[os.DirEntry[str]]:
    """The files of transitions that none of the newest needs."""
    replay = folder / FOLDER
    if not replay.is_dir() or any(each.manifest is None for each in newest):
        return []
    named = named_chunks(newest)
    with os.scandir(replay) as entries:
        return [each for each in entries if each.name not in named]


def prune(run_dir: Path, *, keep: int, milestone_interval: int) -> None:
    """Removes what `surplus_of` counts; raises the same, and `OSError`."""
    with idle(run_dir):
        folder = run_dir / "checkpoints"
        restore_folders(folder)  # what a killed process left half done
        _surplus(run_dir, keep, milestone_interval)  # checked again: it may have changed
        rotate(folder, keep=keep, milestone_interval=milestone_interval)
        for each in _models_before_best(run_dir):
            remove_folder(each)
        latest = folder / "latest"
        if latest.is_symlink() and not latest.exists():
            latest.unlink()
