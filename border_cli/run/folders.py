"""One checkpoint after another on the disk: each is complete or not there."""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from border_cli.core.errors import CheckpointError
from border_cli.core.interfaces import Evaluation
from border_cli.core.types import State
from border_cli.run.files import (
    checksum,
    partial,
    point_link,
    remove_folder,
    replace_folder,
    restore_folders,
    sync,
    write_json,
)
from border_cli.run.handed import Handed
from border_cli.run.manifest import Chunk, Manifest, SavedRows, read_manifest, write_manifest
from border_cli.run.record import versions
from border_cli.run.replay_files import FOLDER, remove_chunks, write_chunks
from border_cli.run.rotation import by_age, collect_garbage, folder_name, rotate
from border_cli.run.tree import Arrays, packed, without_arrays

log = logging.getLogger(__name__)

SaveState = Callable[[Mapping[str, Any], Path], None]
Fill = Callable[[Path], None]  # writes the files of a checkpoint into a folder


class CheckpointFolders:
    """Writes the folders of one run; only one thread at a time calls it.

    What an earlier process left half done is put in order by the first write. Whatever raises
    `OSError` leaves all checkpoints as they were.
    """

    def __init__(
        self,
        run_dir: Path,
        *,
        keep: int,
        milestone_interval: int,
        save_state: SaveState,
        config_sha256: str | None,
        written: Callable[[int], None],
    ) -> None:
        self._run_dir = run_dir
        self._folder = run_dir / "checkpoints"
        self._keep = keep
        self._milestone_interval = milestone_interval
        self._save_state = save_state
        self._config_sha256 = config_sha256
        self._written = written  # told of the bytes as they are written
        self._versions = versions()
        self._sequence: int | None = None  # of the newest checkpoint; None before the first write

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
            self._write(name, lambda folder: self._fill(folder, handed), replay)
        except BaseException:
            if not self._stands(self._folder / name):
                remove_chunks(self._folder / FOLDER, new)
            raise
        self._keep_newest(name)
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
        for old in self._folder.glob("best-*"):
            if old.name not in (name, before):
                remove_folder(old)

    def _put_in_order(self) -> int:
        if self._sequence is None:
            self._folder.mkdir(exist_ok=True)
            restore_folders(self._folder)
            collect_garbage(self._folder)
            newest = by_age(self._folder)[-1:]
            self._sequence = max([0, *(each.age[0] for each in newest)])
        return self._sequence

    def _sync_records(self, run: State) -> None:
        # What was recorded before the checkpoint must not be lost where that is kept.
        recorders = run.get("recorders")
        for position in recorders.values() if isinstance(recorders, Mapping) else ():
            file = position.get("file") if isinstance(position, Mapping) else None
            if isinstance(file, str):
                with suppress(FileNotFoundError):
                    sync(self._run_dir / file)

    def _write(self, name: str, fill: Fill, replay: SavedRows | None) -> None:
        final = self._folder / name
        new = partial(final)
        shutil.rmtree(new, ignore_errors=True)
        new.mkdir()
        try:
            fill(new)
            files = sorted(new.iterdir())
            manifest = Manifest(
                sequence=self._sequence or 0,
                versions=self._versions,
                config_sha256=self._config_sha256,
                sha256={each.name: checksum(each) for each in files},
                replay=replay,
            )
            write_manifest(new, manifest)
            sync(new)
            self._written(sum(each.stat().st_size for each in new.iterdir()))
            replace_folder(new, final)
        except BaseException:
            shutil.rmtree(new, ignore_errors=True)
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
            log.warning("old checkpoints could not be removed: %s", error)
