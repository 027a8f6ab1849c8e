"""Writes the checkpoint folders of a run. Each is either complete or absent."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from secrets import token_hex
from typing import Any

from border_cli.core.interfaces import Evaluation
from border_cli.core.output import RunState
from border_cli.core.types import State
from border_cli.run.checkpoint_files import (
    PendingRows,
    SaveState,
    write_best,
    write_chunks,
    write_state,
)
from border_cli.run.finding import CompleteCheckpoint, by_age, folder_name, is_complete
from border_cli.run.layout import CHECKPOINT, CHECKPOINT_NAME, REPLAY, partial_of, remove_files
from border_cli.run.manifest import MANIFEST, REPLAY_FOLDER, Chunk, SavedRows, seal, write_manifest
from border_cli.run.provenance import versions
from border_cli.system.files import sync

Fill = Callable[[Path], None]  # writes the files of a checkpoint into a folder


@dataclass
class CheckpointFolders:
    """Writes the checkpoint folders of one run. Only one thread at a time may call it.

    Each write first repairs what an earlier write or process left incomplete. A call that raises
    damages no complete checkpoint.
    """

    run_dir: Path
    keep: int
    milestone_interval: int
    save_state: SaveState
    check_lock: Callable[[], None] = lambda: None  # raises `RunDeleted` if the lock is lost
    nbytes: int = 0  # bytes written so far; any thread may read it
    _versions: Mapping[str, str] = field(default_factory=versions)
    _is_ready: bool = False

    @property
    def _folder(self) -> Path:
        return self.run_dir / "checkpoints"

    def write_checkpoint(self, state: RunState, rows: PendingRows | None) -> tuple[Chunk, ...]:
        """Writes a checkpoint and deletes the oldest; returns the chunks of its transitions."""
        self.repair()
        self._sync_metrics(state.run)
        name = folder_name(int(state.counters["opt_steps"]))
        replay = None if rows is None else self._write_rows(rows)
        self._write(name, lambda folder: write_state(folder, state, self.save_state), replay)
        point_link(self._folder / "latest", name)
        rotate(self._folder, keep=self.keep, milestone_interval=self.milestone_interval)
        return () if replay is None else replay.chunks

    def folder(self, opt_steps: int) -> Path:
        """Returns the folder of the checkpoint after this number of updates."""
        return self._folder / folder_name(opt_steps)

    def _write_rows(self, rows: PendingRows) -> SavedRows:
        """Writes new transitions; raises `FileNotFoundError` if an earlier chunk is missing."""
        folder = self._folder / REPLAY_FOLDER
        for chunk in rows.before:
            (folder / chunk.name).stat()
        new = write_chunks(folder, rows.frozen, self._count)
        return SavedRows(first=rows.frozen.oldest, end=rows.frozen.end, chunks=(*rows.before, *new))

    def _count(self, nbytes: int) -> None:
        self.nbytes += nbytes

    def write_best(
        self, agent: Mapping[str, Any], counters: Mapping[str, float], evaluation: Evaluation
    ) -> None:
        """Replaces the best model. Code that reads the previous one must look it up again."""
        self.repair()
        name = f"best-{folder_name(int(counters['opt_steps']))}"
        self._write(
            name,
            lambda folder: write_best(folder, agent, counters, evaluation, self.save_state),
            None,
        )
        point_link(self.run_dir / "best", f"checkpoints/{name}")
        for old in self._folder.glob("best-*"):
            if re.fullmatch(CHECKPOINT_NAME, old.name) and old.name != name:
                remove_folder(old)

    def repair(self) -> None:
        """Removes or completes what an interrupted write left behind."""
        self.check_lock()
        if not self._is_ready:
            self._folder.mkdir(exist_ok=True)
            self._is_ready = True
        restore_folders(self._folder)
        collect_garbage(self._folder)

    def _sync_metrics(self, run: State) -> None:
        # Metrics recorded before a checkpoint must be as durable as the checkpoint.
        for position in run.get("recorders", {}).values():
            path = self.run_dir / position.get("file", "")
            if path.is_file():
                sync(path)

    def _write(self, name: str, fill: Fill, replay: SavedRows | None) -> None:
        """Writes a new folder completely, then replaces the old one with it.

        The name may be missing for a moment. If the process crashes then, `restore_folders`
        completes the replacement.
        """
        final = self._folder / name
        new = partial_of(final)
        new.mkdir()
        fill(new)
        last_sequence = max([0, *(old.position[0] for old in by_age(self._folder))])
        seal(new, sequence=last_sequence + 1, versions=self._versions, replay=replay)
        self._count(sum(file.stat().st_size for file in new.iterdir()))
        name_folder(new, final)


def name_folder(new: Path, final: Path) -> None:
    """Gives a complete folder its final name, and removes the folder that had this name."""
    remove_folder(final)
    new.rename(final)
    sync(final.parent)


def remove_folder(folder: Path) -> None:
    """Deletes the files of a checkpoint, the manifest first, so that it no longer counts as
    complete.

    A folder that contains other files is kept with these files.
    """
    if folder.is_dir():
        (folder / MANIFEST).unlink(missing_ok=True)
        remove_files(folder, CHECKPOINT)
        with suppress(OSError):
            folder.rmdir()


def restore_folders(parent: Path) -> None:
    """Finishes what a crash interrupted: renames complete folders and deletes incomplete ones."""
    for folder in sorted(parent.iterdir()):
        if re.fullmatch(rf"\.{CHECKPOINT_NAME}\.partial", folder.name):
            if is_complete(folder):
                name_folder(folder, folder.with_name(folder.name.split(".")[1]))
            else:
                remove_folder(folder)


def point_link(link: Path, target: str) -> None:
    """Atomically makes `link` a relative symbolic link to `target`."""
    temporary = link.with_name(f".{link.name}.{token_hex(4)}.tmp")
    temporary.symlink_to(target)
    temporary.replace(link)


def rotate(folder: Path, *, keep: int, milestone_interval: int) -> None:
    """Deletes old checkpoints, or only the transitions of those that are milestones, then all
    unused chunks.

    A milestone is the first checkpoint at or after each multiple of `milestone_interval` updates.
    """
    checkpoints = by_age(folder)
    milestones = _milestones(checkpoints, milestone_interval)
    for checkpoint in checkpoints[: max(0, len(checkpoints) - keep)]:
        if checkpoint.folder not in milestones:
            remove_folder(checkpoint.folder)
        elif checkpoint.manifest and checkpoint.manifest.replay:
            write_manifest(checkpoint.folder, replace(checkpoint.manifest, replay=None))
    sync(folder)  # a crash must not restore a manifest whose chunks are deleted
    collect_garbage(folder)


def surplus(
    checkpoints: list[CompleteCheckpoint], *, keep: int, milestone_interval: int
) -> list[CompleteCheckpoint]:
    """Returns the checkpoints that are neither milestones nor among the newest; expects oldest
    first."""
    milestones = _milestones(checkpoints, milestone_interval)
    older = checkpoints[: max(0, len(checkpoints) - keep)]
    return [checkpoint for checkpoint in older if checkpoint.folder not in milestones]


def _milestones(checkpoints: list[CompleteCheckpoint], interval: int) -> set[Path]:
    first: dict[int, CompleteCheckpoint] = {}
    valid = [checkpoint for checkpoint in checkpoints if checkpoint.manifest]
    for checkpoint in sorted(valid, key=lambda c: c.opt_steps) if interval else ():
        first.setdefault(checkpoint.opt_steps // interval, checkpoint)
    return {checkpoint.folder for multiple, checkpoint in first.items() if multiple > 0}


def collect_garbage(folder: Path) -> None:
    """Deletes chunks of transitions that no checkpoint uses."""
    checkpoints = by_age(folder)
    if any(checkpoint.manifest is None for checkpoint in checkpoints):
        return  # a damaged manifest may refer to any chunk
    replay = folder / REPLAY_FOLDER
    if replay.is_dir():
        remove_files(replay, REPLAY, keep=named_chunks(checkpoints))


def named_chunks(checkpoints: list[CompleteCheckpoint]) -> set[str]:
    """Returns the names of the chunks that these checkpoints use."""
    replays = [c.manifest.replay for c in checkpoints if c.manifest and c.manifest.replay]
    return {chunk.name for replay in replays for chunk in replay.chunks}
