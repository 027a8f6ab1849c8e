"""One checkpoint after another on the disk: each is complete or not there."""

from __future__ import annotations

import errno
import logging
import os
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from border_cli.core.errors import CheckpointError
from border_cli.core.files import SETTINGS, files_in, is_own_folder, own_folder, sync, write_text
from border_cli.core.interfaces import Evaluation
from border_cli.core.types import State
from border_cli.run.checkpoint_files import (
    MANIFEST,
    NEEDED,
    PendingCheckpoint,
    SaveState,
    read_manifest,
    seal,
    verify,
    write_best,
    write_manifest,
    write_state,
)
from border_cli.run.finding import Kept, by_age, folder_name
from border_cli.run.layout import (
    CHECKPOINT,
    REPLAY,
    STEPS,
    TEMPORARY,
    backup_of,
    partial_of,
    refresh_times,
    remove_files,
)
from border_cli.run.replay_files import (
    FOLDER,
    Chunk,
    SavedRows,
    remove_chunks,
    up_to_missing,
    write_chunks,
)
from border_cli.run.status import versions

log = logging.getLogger(__name__)

Fill = Callable[[Path], None]  # writes the files of a checkpoint into a folder


@dataclass(frozen=True, slots=True)
class _BestModel:
    """The files of the best model, kept in memory: it cannot be trained again."""

    name: str  # of its folder
    files: Mapping[str, bytes]

    def is_intact(self, run_dir: Path) -> bool:
        """Whether it is where it was written, as far as names tell."""
        folder = run_dir / "checkpoints" / self.name
        linked = (run_dir / "best").resolve() == folder.resolve()
        return linked and is_own_folder(folder) and self.files.keys() <= files_in(folder)

    def fill(self, folder: Path) -> None:
        """Writes them again, the manifest last."""
        for name in sorted(self.files, key=lambda each: each == MANIFEST):
            (folder / name).write_bytes(self.files[name])
            sync(folder / name)


def _best_of(run_dir: Path) -> _BestModel | None:
    """The best model in a run directory; None without a whole one."""
    folder = (run_dir / "best").resolve()
    if folder.parent != (run_dir / "checkpoints").resolve():
        return None
    try:
        verify(folder)
        names = [*read_manifest(folder).sha256, MANIFEST]
        return _BestModel(folder.name, {name: (folder / name).read_bytes() for name in names})
    except (CheckpointError, OSError):
        return None


class CheckpointFolders:
    """Writes the folders of one run; only one thread at a time calls it.

    The first write puts in order what an earlier process left half done. What was deleted from
    outside is written again by the next write. A call that raises `OSError` leaves all checkpoints
    as they were.
    """

    def __init__(
        self,
        run_dir: Path,
        *,
        keep: int,
        milestone_interval: int,
        save_state: SaveState,
        config_sha256: str | None,
        settings: str,
        reacquire: Callable[[], None],
        written: Callable[[int], None],
    ) -> None:
        self._run_dir = run_dir
        self._folder = run_dir / "checkpoints"
        self._keep = keep
        self._milestone_interval = milestone_interval
        self._save_state = save_state
        self._config_sha256 = config_sha256
        self._settings = settings  # the text of `.hydra/resolved.yaml`; empty: not saved there
        self._reacquire = reacquire  # and create the directory again where it is gone
        self._written = written  # called with the number of bytes as they are written
        self._versions = versions()
        self._sequence: int | None = None  # of the newest checkpoint; None before the first write
        self._newest: str | None = None  # its name; None before one was written here
        self._best: _BestModel | None = None

    def write_checkpoint(self, pending: PendingCheckpoint) -> tuple[Chunk, ...]:
        """Keeps a checkpoint and drops the oldest; returns the chunks of its transitions."""
        self._sequence = self._put_in_order() + 1
        self._sync_records(pending.run)
        rows = pending.rows
        new: list[Chunk] = []
        if rows is not None:
            new = write_chunks(
                self._folder / FOLDER,
                rows.frozen,
                row_nbytes=rows.row_nbytes,
                written=self._written,
            )
        name = folder_name(int(pending.counters["opt_steps"]))
        replay = None if rows is None else rows.saved(new)
        try:
            if replay is not None and len(self.up_to_missing(replay.chunks)) < len(replay.chunks):
                raise OSError(
                    errno.ENOENT, "lost files during the save", str(self._folder / FOLDER)
                )
            self._write(name, lambda folder: write_state(folder, pending, self._save_state), replay)
        except BaseException:
            if not self._is_newest(self._folder / name):
                remove_chunks(self._folder / FOLDER, new)
            raise
        self._keep_newest(name)
        self._newest = name
        return () if replay is None else replay.chunks

    def write_best(
        self, agent: Mapping[str, Any], counters: Mapping[str, float], evaluation: Evaluation
    ) -> None:
        """Replaces the best model; the one before it stays, because it may be being read."""
        self._put_in_order()
        name = f"best-{folder_name(int(counters['opt_steps']))}"
        link = self._run_dir / "best"
        before = link.resolve().name

        def fill(folder: Path) -> None:
            write_best(folder, agent, counters, evaluation, self._save_state)

        self._write(name, fill, None)
        point_link(link, f"checkpoints/{name}")
        self._best = _best_of(self._run_dir)
        if self._best is None:
            raise OSError(
                errno.ENOENT, "disappeared after it was written", str(self._folder / name)
            )
        for old in self._folder.iterdir():
            if re.fullmatch(r"best-\d{10,}", old.name) and old.name not in (name, before):
                remove_folder(old)

    def up_to_missing(self, chunks: Sequence[Chunk]) -> tuple[Chunk, ...]:
        """The chunks before the first of which a file is gone; any thread may ask."""
        return up_to_missing(self._folder / FOLDER, chunks)

    def is_intact(self, chunks: Sequence[Chunk]) -> bool:
        """Whether the newest checkpoint, with its transitions in these chunks, the best model and
        the settings are still there."""
        files = {*NEEDED, MANIFEST}
        newest = self._newest is None or files <= files_in(self._folder / self._newest)
        settings = not self._settings or (self._run_dir / SETTINGS).is_file()
        best = self._best is None or self._best.is_intact(self._run_dir)
        return newest and settings and best and len(self.up_to_missing(chunks)) == len(chunks)

    def refresh_times(self) -> None:
        """So that no purge of old files takes what the run relies on."""
        refresh_times(self._run_dir)

    def _put_in_order(self) -> int:
        self._reacquire()
        own_folder(self._folder)
        if self._sequence is None:
            restore_folders(self._folder)
            collect_garbage(self._folder)
            newest = by_age(self._folder)[-1:]
            self._sequence = max([0, *(each.age[0] for each in newest)])
            self._best = _best_of(self._run_dir)
        return self._sequence

    def restore_deleted(self) -> None:
        """The settings and the best model, which no checkpoint holds."""
        settings, best = self._run_dir / SETTINGS, self._best
        if self._settings and not settings.is_file():
            log.warning("%s was missing; writing it again", settings)
            own_folder(settings.parent)
            write_text(settings, self._settings)
        if best is not None and not best.is_intact(self._run_dir):
            log.warning("the best model, %s, was missing; writing it again", best.name)
            self._place(best.name, best.fill)
            point_link(self._run_dir / "best", f"checkpoints/{best.name}")

    def _sync_records(self, run: State) -> None:
        # What was recorded before the checkpoint must not be lost where that is kept.
        recorders = run.get("recorders")
        for position in recorders.values() if isinstance(recorders, Mapping) else ():
            file = position.get("file") if isinstance(position, Mapping) else None
            path = self._run_dir / file if isinstance(file, str) else None
            if path is not None and path.is_file() and not path.is_symlink():
                with suppress(FileNotFoundError):
                    sync(path)

    def _write(self, name: str, fill: Fill, replay: SavedRows | None) -> None:
        def complete(folder: Path) -> None:
            fill(folder)
            seal(
                folder,
                sequence=self._sequence or 0,
                versions=self._versions,
                config_sha256=self._config_sha256,
                replay=replay,
            )

        self._place(name, complete)

    def _place(self, name: str, fill: Fill) -> None:
        """Replaces one folder by another, which `fill` writes whole first."""
        final = self._folder / name
        new = partial_of(final)
        remove_hidden(new)
        new.mkdir()
        try:
            fill(new)
            sync(new)
            self._written(sum(each.stat().st_size for each in new.iterdir()))
            replace_folder(new, final)
        except BaseException:
            with suppress(OSError):
                remove_hidden(new)
            raise

    def _is_newest(self, place: Path) -> bool:
        try:
            return read_manifest(place).sequence == self._sequence
        except CheckpointError:
            return False

    def _keep_newest(self, name: str) -> None:
        point_link(self._folder / "latest", name)
        try:
            rotate(self._folder, keep=self._keep, milestone_interval=self._milestone_interval)
        except OSError as error:  # the new one is complete nevertheless
            log.warning("could not remove old checkpoints: %s", error)


def replace_folder(new: Path, place: Path) -> None:
    """Moves the folder `new` to `place`; what stood there is removed when `new` is safe.

    No system call swaps two folders everywhere, so for a moment `place` is missing and its content
    is at `backup_of(place)`: `restore_folders` undoes what a crash in that moment leaves.
    """
    old = backup_of(place)
    if os.path.lexists(place):
        own_folder(place)
        remove_hidden(old)
        place.rename(old)
    try:
        new.rename(place)
    except BaseException:
        if is_own_folder(old):
            old.rename(place)
        raise
    sync(place.parent)
    remove_hidden(old)


def remove_folder(folder: Path) -> None:
    """Removes the folder; a crash in between never leaves half of it under its name."""
    if is_own_folder(folder):
        partial = partial_of(folder)
        remove_hidden(partial)
        folder.rename(partial)
        remove_hidden(partial)


def remove_hidden(hidden: Path) -> None:
    """Removes the files of a checkpoint from a hidden folder, and then the folder.

    What is not ours stays in it, in plain sight: `.0000000010.old` becomes
    `0000000010-left`.
    """
    if not is_own_folder(hidden):
        return
    remove_files(hidden, CHECKPOINT)
    try:
        hidden.rmdir()
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
        name, number = hidden.name.strip(".").rpartition(".")[0], 1
        left = hidden.with_name(f"{name}-left")
        while os.path.lexists(left):
            number += 1
            left = hidden.with_name(f"{name}-left-{number}")
        hidden.rename(left)
        log.warning("removed a checkpoint; other files found in it were moved to %s", left)


def restore_folders(parent: Path) -> None:
    """Puts back the backups that a crash left, and removes what it left half written."""
    for old in _hidden(parent, "old"):
        place = old.with_name(old.name.removeprefix(".").removesuffix(".old"))
        if os.path.lexists(place):
            remove_hidden(old)
        else:
            old.rename(place)
    for half in _hidden(parent, "partial"):
        remove_hidden(half)


def _hidden(parent: Path, ending: str) -> list[Path]:
    named = rf"\.{STEPS}\.{ending}"
    found = [each for each in parent.iterdir() if re.fullmatch(named, each.name)]
    return [each for each in found if is_own_folder(each)]


def point_link(link: Path, target: str) -> None:
    """Makes `link` a relative symbolic link to `target`, atomically."""
    if os.path.lexists(link) and not link.is_symlink():
        raise OSError(errno.EEXIST, "is not a symbolic link", str(link))
    temporary = link.with_name(f".{link.name}.tmp")
    if temporary.is_symlink():
        temporary.unlink()
    temporary.symlink_to(target)
    temporary.replace(link)


def rotate(folder: Path, *, keep: int, milestone_interval: int) -> None:
    """Keeps the newest, and the milestones without their transitions; then drops unnamed chunks.

    A milestone is the first checkpoint at or after each multiple of `milestone_interval`.
    """
    kept = by_age(folder)
    gone = {each.folder for each in surplus(kept, keep=keep, milestone_interval=milestone_interval)}
    for each in kept[: max(0, len(kept) - keep)]:
        if each.folder in gone:
            remove_folder(each.folder)
        elif each.manifest and each.manifest.replay and is_own_folder(each.folder):
            write_manifest(each.folder, replace(each.manifest, replay=None))
    sync(folder)  # no manifest may come back after a crash when its chunks are gone
    collect_garbage(folder)


def surplus(kept: list[Kept], *, keep: int, milestone_interval: int) -> list[Kept]:
    """Those of the checkpoints, the oldest first, that are neither new enough nor milestones."""
    milestones = _milestones(kept, milestone_interval)
    return [each for each in kept[: max(0, len(kept) - keep)] if each.folder not in milestones]


def _milestones(kept: list[Kept], interval: int) -> set[Path]:
    first: dict[int, Kept] = {}
    for each in sorted(kept, key=lambda each: each.opt_steps) if interval else ():
        first.setdefault(each.opt_steps // interval, each)
    return {each.folder for multiple, each in first.items() if multiple > 0}


def collect_garbage(folder: Path) -> None:
    """Removes files of ours that no checkpoint names, or that killed processes left unfinished."""
    kept = by_age(folder)
    for each in kept:
        if is_own_folder(each.folder):
            remove_files(each.folder, TEMPORARY)
    if any(each.manifest is None for each in kept):
        return  # it may name any chunk
    named = named_chunks(kept)
    replay = folder / FOLDER
    if is_own_folder(replay):
        remove_files(replay, REPLAY, keep=frozenset(named))


def named_chunks(kept: list[Kept]) -> set[str]:
    """The files of transitions that these checkpoints need."""
    return {
        name
        for each in kept
        if each.manifest and each.manifest.replay
        for chunk in each.manifest.replay.chunks
        for name in chunk.files
    }
