"""One checkpoint after another on the disk: each is complete or not there."""

from __future__ import annotations

import errno
import json
import logging
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from border_cli.core.errors import CheckpointError
from border_cli.core.files import SETTINGS, is_own_folder, own_folder, write_text
from border_cli.core.interfaces import Evaluation
from border_cli.core.types import State
from border_cli.run.files import (
    checksum,
    dissolve,
    files_in,
    partial,
    point_link,
    refresh_times,
    remove_folder,
    replace_folder,
    restore_folders,
    sync,
    write_json,
)
from border_cli.run.handed import Handed
from border_cli.run.manifest import NAME, Chunk, Manifest, SavedRows, read_manifest, write_manifest
from border_cli.run.reading import NEEDED, verify
from border_cli.run.record import versions
from border_cli.run.replay_files import FOLDER, remove_chunks, up_to_missing, write_chunks
from border_cli.run.rotation import by_age, collect_garbage, folder_name, rotate
from border_cli.run.tree import Arrays, packed, without_arrays

log = logging.getLogger(__name__)

SaveState = Callable[[Mapping[str, Any], Path], None]
Fill = Callable[[Path], None]  # writes the files of a checkpoint into a folder


@dataclass(frozen=True, slots=True)
class _Best:
    """The files of the best model, kept in memory: nobody can train it again."""

    name: str  # of its folder
    files: Mapping[str, bytes]

    def stands(self, run_dir: Path) -> bool:
        """Whether it is where it was written, as far as names tell."""
        folder = run_dir / "checkpoints" / self.name
        linked = (run_dir / "best").resolve() == folder.resolve()
        return linked and is_own_folder(folder) and self.files.keys() <= files_in(folder)

    def fill(self, folder: Path) -> None:
        """Writes them again, the manifest last."""
        for name in sorted(self.files, key=lambda each: each == NAME):
            (folder / name).write_bytes(self.files[name])
            sync(folder / name)


def _best_of(run_dir: Path) -> _Best | None:
    """The best model that stands in a run directory; None where there is none that is whole."""
    folder = (run_dir / "best").resolve()
    if folder.parent != (run_dir / "checkpoints").resolve():
        return None
    try:
        verify(folder)
        names = [*read_manifest(folder).sha256, NAME]
        return _Best(folder.name, {name: (folder / name).read_bytes() for name in names})
    except (CheckpointError, OSError):
        return None


class CheckpointFolders:
    """Writes the folders of one run; only one thread at a time calls it.

    What an earlier process left half done is put in order by the first write. What somebody else
    deleted since is written again by the next one. Whatever raises `OSError` leaves all checkpoints
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
        hold: Callable[[], None],
        written: Callable[[int], None],
    ) -> None:
        self._run_dir = run_dir
        self._folder = run_dir / "checkpoints"
        self._keep = keep
        self._milestone_interval = milestone_interval
        self._save_state = save_state
        self._config_sha256 = config_sha256
        self._settings = settings  # the text of `.hydra/resolved.yaml`; empty: not saved there
        self._hold = hold  # the directory, which is made again where it is gone
        self._written = written  # told of the bytes as they are written
        self._versions = versions()
        self._sequence: int | None = None  # of the newest checkpoint; None before the first write
        self._newest: str | None = None  # its name; None before one was written here
        self._best: _Best | None = None

    def write_checkpoint(self, handed: Handed) -> tuple[Chunk, ...]:
        """Keeps a checkpoint and drops the oldest; returns the chunks that hold its rows."""
        self._sequence = self._put_in_order() + 1
        self._sync_records(handed.run)
        rows = handed.rows
        new: list[Chunk] = []
        if rows is not None:
            new = write_chunks(
                self._folder / FOLDER,
                rows.frozen,
                row_nbytes=rows.row_nbytes,
                written=self._written,
            )
        name = folder_name(int(handed.counters["opt_steps"]))
        replay = None if rows is None else rows.saved(new)
        try:
            if replay is not None and len(self.up_to_missing(replay.chunks)) < len(replay.chunks):
                raise OSError(
                    errno.ENOENT, "lost files during the save", str(self._folder / FOLDER)
                )
            self._write(name, lambda folder: self._fill(folder, handed), replay)
        except BaseException:
            if not self._stands(self._folder / name):
                remove_chunks(self._folder / FOLDER, new)
            raise
        self._keep_newest(name)
        self._newest = name
        return () if replay is None else replay.chunks

    def write_best(
        self, agent: Mapping[str, Any], counters: Mapping[str, float], evaluation: Evaluation
    ) -> None:
        """Replaces the best model; the one before it stays for whoever is reading it just now."""
        self._put_in_order()

        def fill(folder: Path) -> None:
            self._write_agent(folder / "agent.pt", agent)
            write_json(folder / "state.json", counters)
            score = {"score": evaluation.score, **counters, **asdict(evaluation)}
            write_json(folder / "score.json", score)

        name = f"best-{folder_name(int(counters['opt_steps']))}"
        link = self._run_dir / "best"
        before = link.resolve().name
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

    def stand(self, chunks: Sequence[Chunk]) -> bool:
        """Whether the newest checkpoint, whose rows are in these chunks, the best model and the
        settings are still there."""
        newest = self._newest is None or {*NEEDED, NAME} <= files_in(self._folder / self._newest)
        settings = not self._settings or (self._run_dir / SETTINGS).is_file()
        best = self._best is None or self._best.stands(self._run_dir)
        return newest and settings and best and len(self.up_to_missing(chunks)) == len(chunks)

    def refresh_times(self) -> None:
        """So that no purge of old files takes what the run relies on."""
        refresh_times(self._run_dir)

    def _put_in_order(self) -> int:
        self._hold()
        own_folder(self._folder)
        if self._sequence is None:
            restore_folders(self._folder)
            collect_garbage(self._folder)
            newest = by_age(self._folder)[-1:]
            self._sequence = max([0, *(each.age[0] for each in newest)])
            self._best = _best_of(self._run_dir)
        return self._sequence

    def write_what_is_gone(self) -> None:
        """The settings and the best model, which no checkpoint holds."""
        settings, best = self._run_dir / SETTINGS, self._best
        if self._settings and not settings.is_file():
            log.warning("%s was missing; writing it again", settings)
            own_folder(settings.parent)
            write_text(settings, self._settings)
        if best is not None and not best.stands(self._run_dir):
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
            files = sorted(folder.iterdir())
            manifest = Manifest(
                sequence=self._sequence or 0,
                versions=self._versions,
                config_sha256=self._config_sha256,
                sha256={each.name: checksum(each) for each in files},
                replay=replay,
            )
            write_manifest(folder, manifest)

        self._place(name, complete)

    def _place(self, name: str, fill: Fill) -> None:
        """Replaces one folder at once by another, which `fill` writes whole."""
        final = self._folder / name
        new = partial(final)
        dissolve(new)
        new.mkdir()
        try:
            fill(new)
            sync(new)
            self._written(sum(each.stat().st_size for each in new.iterdir()))
            replace_folder(new, final)
        except BaseException:
            with suppress(OSError):
                dissolve(new)
            raise

    def _fill(self, folder: Path, handed: Handed) -> None:
        self._write_agent(folder / "agent.pt", handed.agent)
        if handed.candidate is not None:
            self._write_agent(folder / "candidate.pt", handed.candidate)
        arrays: Arrays = {}
        state = without_arrays({**handed.counters, "run": handed.run}, arrays)
        (folder / "state.json").write_text(json.dumps(state, allow_nan=False), encoding="utf-8")
        (folder / "arrays.npz").write_bytes(packed(arrays))
        for name in ("state.json", "arrays.npz"):
            sync(folder / name)

    def _write_agent(self, path: Path, agent: Mapping[str, Any]) -> None:
        self._save_state(agent, path)
        sync(path)

    def _stands(self, place: Path) -> bool:
        try:
            return read_manifest(place).sequence == self._sequence
        except CheckpointError:
            return False

    def _keep_newest(self, name: str) -> None:
        point_link(self._folder / "latest", name)
        try:
            rotate(self._folder, keep=self._keep, milestone_interval=self._milestone_interval)
        except OSError as error:  # the new one is there all the same
            log.warning("could not remove old checkpoints: %s", error)
