"""Writes, verifies and reads the files of a checkpoint. A resume loads the newest valid one.

checkpoints/0000010000/        agent.npz  state.json  arrays.npz  manifest.json
checkpoints/best-0000007000/   agent.npz  state.json  score.json  manifest.json
checkpoints/replay/            rows-<first>-<end>-<token>.npy, shared by the numbered checkpoints
                               so that each transition is written once
checkpoints/latest, best       relative links to the newest and to the best checkpoint

agent.npz       the state of the agent (`core/state.py`)
state.json      the counters, and under "run" the tree of all other state, without its arrays
arrays.npz      the arrays of that tree
manifest.json   written last, so a folder without it is incomplete: format, sequence, versions, a
                SHA-256 of every file and chunk, and a checksum of its own entries
rows-….npy      a chunk, which never changes and can be read on its own: the buffer's arrays for
                these rows, one after another in `.npy` format
"""

from __future__ import annotations

import hashlib
import io
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from secrets import token_hex
from typing import Any

import numpy as np
from numpy.typing import NDArray

from border_cli.core.interfaces import Evaluation, FrozenRows, ReplayBuffer
from border_cli.core.output import Resumption, RunState
from border_cli.core.state import dump_state, restore_array, write_arrays
from border_cli.core.types import State
from border_cli.errors import CheckpointError
from border_cli.run.manifest import (
    REPLAY_FOLDER,
    Chunk,
    Manifest,
    read_json,
    readable,
    verify,
    verify_file,
)
from border_cli.run.run_folder import RunFolder
from border_cli.system.files import sync, write_bytes, write_json

log = logging.getLogger(__name__)

MAX_HEADER = 2**20  # maximum size of an array header in bytes; a field takes about 20
OVERWRITTEN = "the disk is too slow: transitions were overwritten before they were saved"

SaveState = Callable[[Mapping[str, Any], Path], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingRows:
    """Transitions to write, and the chunks of earlier ones that are still in the buffer."""

    frozen: FrozenRows
    before: tuple[Chunk, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedCheckpoint:
    """A checkpoint whose files are verified; its transitions are verified when they are loaded."""

    folder: Path
    manifest: Manifest
    counters: Mapping[str, float]
    run: State

    @property
    def opt_steps(self) -> int:
        return int(self.counters["opt_steps"])

    @property
    def has_rows(self) -> bool:
        """True if the transitions were saved in this checkpoint."""
        return self.manifest.replay is not None

    @property
    def chunks(self) -> tuple[Chunk, ...]:
        """The files of the transitions."""
        return () if self.manifest.replay is None else self.manifest.replay.chunks

    def load_rows(self, replay_buffer: ReplayBuffer) -> None:
        """Loads the transitions into a buffer that has loaded its state; raises `CheckpointError`
        if a file is damaged. The buffer is then empty until it loads another state."""
        load_chunks(self.folder.parent / REPLAY_FOLDER, self.chunks, replay_buffer)


def write_state(folder: Path, state: RunState, save_state: SaveState) -> None:
    """Writes all files of a checkpoint except the manifest and the transitions."""
    save_state(state.agent, folder / "agent.npz")
    arrays: dict[str, NDArray[Any]] = {}
    text = dump_state({**state.counters, "run": state.run}, arrays)
    (folder / "state.json").write_text(text, encoding="utf-8")
    write_arrays(folder / "arrays.npz", arrays)


def write_best(
    folder: Path,
    agent: Mapping[str, Any],
    counters: Mapping[str, float],
    evaluation: Evaluation,
    save_state: SaveState,
) -> None:
    """Writes all files of a best model except the manifest."""
    save_state(agent, folder / "agent.npz")
    write_json(folder / "state.json", counters)
    values = asdict(replace(evaluation, film=None))
    # Leaves out values that no environment reported, and the film, which has its own file.
    write_json(
        folder / "score.json",
        {
            "score": evaluation.score,
            **counters,
            **{key: value for key, value in values.items() if value},
        },
    )


def read_checkpoint(folder: Path) -> VerifiedCheckpoint:
    """Verifies a checkpoint and reads everything except its agent and transitions.

    Raises `CheckpointError` naming the file and the problem.
    """
    manifest = verify(folder)
    with np.load(folder / "arrays.npz", allow_pickle=False) as arrays:
        state = read_json(folder / "state.json", partial(restore_array, arrays))
    return VerifiedCheckpoint(
        folder=folder, manifest=manifest, run=state.pop("run"), counters=state
    )


class ResumableCheckpoints:
    """The checkpoints of a run directory, newest first; each is read only when it is needed.

    `rows`: whether to load saved transitions. Damaged checkpoints are skipped and reported later.
    Raises CheckpointError if none is left.
    """

    newest: VerifiedCheckpoint  # verified except for its transitions
    agent: dict[str, Any]  # agent state of `newest`

    def __init__(
        self, folder: RunFolder, *, rows: bool, load_state: Callable[[Path], dict[str, Any]]
    ) -> None:
        self.run_dir = folder.path
        self._rows = rows
        self._load_state = load_state  # reads `agent.npz`
        self._remaining = iter(folder.checkpoints)
        self._damaged: list[CheckpointError] = []
        self._read_next()

    def _read_next(self) -> None:
        for folder in self._remaining:
            try:
                self.newest = read_checkpoint(folder)
                self.agent = self._load_state(folder / "agent.npz")
            except CheckpointError as error:
                self._damaged.append(error)
            else:
                return
        raise _no_checkpoint(self.run_dir, self._damaged)

    def restore_newest(self, resume: Callable[[Resumption], None]) -> VerifiedCheckpoint:
        """Passes the newest valid checkpoint to `resume` and returns it; logs the damaged ones."""
        while True:
            saved = self.newest
            load_rows = saved.load_rows if self._rows and saved.has_rows else None
            try:
                resume(
                    Resumption(
                        counters=saved.counters,
                        run=saved.run,
                        agent=self.agent,
                        load_rows=load_rows,
                    )
                )
            except CheckpointError as error:
                self._damaged.append(error)
                self._read_next()
                continue
            for damage in self._damaged:
                log.error("%s; resuming from the previous checkpoint", damage)
            return saved


def _no_checkpoint(run_dir: Path, damaged: list[CheckpointError]) -> CheckpointError:
    if not damaged:
        return CheckpointError(f"{run_dir} has no checkpoint to resume from")
    listed = "".join(f"\n  {line}" for line in dict.fromkeys(map(str, damaged)))
    return CheckpointError(
        f"{run_dir} has no complete checkpoint to resume from:{listed}\n"
        "If only files in checkpoints/replay are damaged, checkpoint.replay_buffer=false resumes "
        "without them"
    )


def write_chunks(folder: Path, rows: FrozenRows, written: Callable[[int], None]) -> list[Chunk]:
    """Writes all rows and syncs them to disk; calls `written` with the size of each chunk in bytes.
    Raises OSError if rows were given up."""
    folder.mkdir(exist_ok=True)
    chunks, first = [], rows.first
    while (arrays := rows.take()) is not None:
        content, end = _serialize(arrays), first + len(arrays[-1])
        name = f"rows-{first:010d}-{end:010d}-{token_hex(4)}.npy"
        write_bytes(folder / name, content)
        written(len(content))
        chunks.append(
            Chunk(first=first, end=end, name=name, sha256=hashlib.sha256(content).hexdigest())
        )
        first = end
    if first < rows.end:
        raise OSError(OVERWRITTEN)
    if chunks:
        sync(folder)
    return chunks


def _serialize(arrays: Sequence[NDArray[Any]]) -> bytes:
    content = io.BytesIO()
    for array in arrays:
        np.lib.format.write_array(content, array, version=(3, 0), allow_pickle=False)
    return content.getvalue()


def load_chunks(folder: Path, chunks: Sequence[Chunk], buffer: ReplayBuffer) -> None:
    """Verifies every chunk before loading its rows into the buffer.

    Raises `CheckpointError` naming the file and the problem; the buffer is then empty.
    """
    for chunk in chunks:
        path = folder / chunk.name
        verify_file(path, chunk.sha256)
        with readable(path):
            arrays = _read_arrays(path)
        buffer.load_rows(chunk.first, arrays)


def _read_arrays(path: Path) -> list[NDArray[Any]]:
    arrays: list[NDArray[Any]] = []
    with path.open("rb") as file:
        while file.peek(1):
            arrays.append(
                np.lib.format.read_array(file, allow_pickle=False, max_header_size=MAX_HEADER)
            )
    return arrays
