"""One checkpoint after another on the disk: each is complete or not there."""

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
from border_cli.run.finding import Kept, by_age, folder_name, is_complete
from border_cli.run.layout import CHECKPOINT, REPLAY, STEPS, partial_of, remove_files
from border_cli.run.manifest import FOLDER, MANIFEST, Chunk, SavedRows, seal, write_manifest
from border_cli.run.provenance import versions
from border_cli.system.files import sync

Fill = Callable[[Path], None]  # writes the files of a checkpoint into a folder


@dataclass
class CheckpointFolders:
    """Writes the folders of one run; only one thread at a time calls it.

    A write begins by putting in order what an earlier one, or an earlier process, left half done. A
    call that raises leaves all checkpoints as they were.
    """

    run_dir: Path
    keep: int
    milestone_interval: int
    save_state: SaveState
    check_lock: Callable[[], None] = lambda: None  # raises `RunDeleted`: it is no longer the run's
    nbytes: int = 0  # written so far; any thread may read it
    _versions: Mapping[str, str] = field(default_factory=versions)
    _begun: bool = False

    @property
    def _folder(self) -> Path:
        return self.run_dir / "checkpoints"

    def write_checkpoint(self, state: RunState, rows: PendingRows | None) -> tuple[Chunk, ...]:
        """Keeps a checkpoint and drops the oldest; returns the chunks of its transitions."""
        self.put_in_order()
        self._sync_records(state.run)
        name = folder_name(int(state.counters["opt_steps"]))
        replay = None if rows is None else self._write_rows(rows)
        self._write(name, lambda folder: write_state(folder, state, self.save_state), replay)
        point_link(self._folder / "latest", name)
        rotate(self._folder, keep=self.keep, milestone_interval=self.milestone_interval)
        return () if replay is None else replay.chunks

    def folder(self, opt_steps: int) -> Path:
        """The folder of the checkpoint after so many updates."""
        return self._folder / folder_name(opt_steps)

    def _write_rows(self, rows: PendingRows) -> SavedRows:
        """Raises `FileNotFoundError` where one of the files before them is gone."""
        folder = self._folder / FOLDER
        for each in rows.before:
            (folder / each.name).stat()
        new = write_chunks(folder, rows.frozen, self._count)
        return SavedRows(first=rows.frozen.oldest, end=rows.frozen.end, chunks=(*rows.before, *new))

    def _count(self, nbytes: int) -> None:
        self.nbytes += nbytes

    def write_best(
        self, agent: Mapping[str, Any], counters: Mapping[str, float], evaluation: Evaluation
    ) -> None:
        """Replaces the best model; who is reading the one before looks it up again."""
        self.put_in_order()
        name = f"best-{folder_name(int(counters['opt_steps']))}"
        self._write(
            name,
            lambda folder: write_best(folder, agent, counters, evaluation, self.save_state),
            None,
        )
        point_link(self.run_dir / "best", f"checkpoints/{name}")
        for old in self._folder.glob("best-*"):
            if re.fullmatch(STEPS, old.name) and old.name != name:
                remove_folder(old)

    def put_in_order(self) -> None:
        """Removes, or completes, what was left half done."""
        self.check_lock()
        if not self._begun:
            self._folder.mkdir(exist_ok=True)
            self._begun = True
        restore_folders(self._folder)
        collect_garbage(self._folder)

    def _sync_records(self, run: State) -> None:
        # What was recorded before the checkpoint must not be lost where that is kept.
        for position in run.get("recorders", {}).values():
            path = self.run_dir / position.get("file", "")
            if path.is_file():
                sync(path)

    def _write(self, name: str, fill: Fill, replay: SavedRows | None) -> None:
        """Replaces one folder by another, which is written whole first.

        For a moment the name may be missing: `restore_folders` ends what a crash then leaves.
        """
        final = self._folder / name
        new = partial_of(final)
        new.mkdir()
        fill(new)
        newest = max([0, *(checkpoint.age[0] for checkpoint in by_age(self._folder))])
        seal(new, sequence=newest + 1, versions=self._versions, replay=replay)
        self._count(sum(each.stat().st_size for each in new.iterdir()))
        name_folder(new, final)


def name_folder(new: Path, final: Path) -> None:
    """Gives a complete folder its name, in place of the one that has it."""
    remove_folder(final)
    new.rename(final)
    sync(final.parent)


def remove_folder(folder: Path) -> None:
    """Removes the files of a checkpoint, the manifest first: what is half removed does not count.

    A folder with files of others stays with these.
    """
    if folder.is_dir():
        (folder / MANIFEST).unlink(missing_ok=True)
        remove_files(folder, CHECKPOINT)
        with suppress(OSError):
            folder.rmdir()


def restore_folders(parent: Path) -> None:
    """Ends what a crash left half done: a folder that is whole gets its name, another one goes."""
    for each in sorted(parent.iterdir()):
        if re.fullmatch(rf"\.{STEPS}\.partial", each.name):
            if is_complete(each):
                name_folder(each, each.with_name(each.name.split(".")[1]))
            else:
                remove_folder(each)


def point_link(link: Path, target: str) -> None:
    """Makes `link` a relative symbolic link to `target`, atomically."""
    temporary = link.with_name(f".{link.name}.{token_hex(4)}.tmp")
    temporary.symlink_to(target)
    temporary.replace(link)


def rotate(folder: Path, *, keep: int, milestone_interval: int) -> None:
    """Keeps the newest, and the milestones without their transitions; then drops unnamed chunks.

    A milestone is the first checkpoint at or after each multiple of `milestone_interval`.
    """
    kept = by_age(folder)
    milestones = _milestones(kept, milestone_interval)
    for each in kept[: max(0, len(kept) - keep)]:
        if each.folder not in milestones:
            remove_folder(each.folder)
        elif each.manifest and each.manifest.replay:
            write_manifest(each.folder, replace(each.manifest, replay=None))
    sync(folder)  # no manifest may come back after a crash when its chunks are gone
    collect_garbage(folder)


def surplus(kept: list[Kept], *, keep: int, milestone_interval: int) -> list[Kept]:
    """The checkpoints that are neither new enough nor milestones; `kept` has the oldest first."""
    milestones = _milestones(kept, milestone_interval)
    return [each for each in kept[: max(0, len(kept) - keep)] if each.folder not in milestones]


def _milestones(kept: list[Kept], interval: int) -> set[Path]:
    first: dict[int, Kept] = {}
    for each in sorted(kept, key=lambda each: each.opt_steps) if interval else ():
        first.setdefault(each.opt_steps // interval, each)
    return {each.folder for multiple, each in first.items() if multiple > 0}


def collect_garbage(folder: Path) -> None:
    """Removes files of transitions that no checkpoint names."""
    kept = by_age(folder)
    if any(each.manifest is None for each in kept):
        return  # it may name any chunk
    replay = folder / FOLDER
    if replay.is_dir():
        remove_files(replay, REPLAY, keep=named_chunks(kept))


def named_chunks(kept: list[Kept]) -> set[str]:
    """The files of transitions that these checkpoints need."""
    replays = [each.manifest.replay for each in kept if each.manifest and each.manifest.replay]
    return {chunk.name for replay in replays for chunk in replay.chunks}
