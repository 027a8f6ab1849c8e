"""The files of one checkpoint: written, verified, read; a resume takes the newest whole one.

checkpoints/0000010000/        agent.pt  state.json  arrays.npz  manifest.json
checkpoints/best-0000007000/   agent.pt  state.json  score.json  manifest.json
checkpoints/replay/            rows-<first>-<end>-<token>.npy, shared by the numbered ones: each
                               transition is written once
checkpoints/latest, best       relative links to the newest and to the best

agent.pt        the state of the agent, tensors and numbers
state.json      the counters, and under "run" the tree of everything else. There
                `{"__array__": name}` stands for an array of arrays.npz, which cannot hold code
arrays.npz      the arrays of that tree
manifest.json   written last, so a folder without one is not complete: format, sequence, versions,
                a SHA-256 of every file and chunk, and a checksum of its own entries
rows-….npy      a chunk, which never changes and can be read alone: the `.npy` arrays that the
                buffer gives for these rows, one behind another
"""

from __future__ import annotations

import hashlib
import io
import json
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
from border_cli.core.types import State
from border_cli.errors import CheckpointError
from border_cli.run.manifest import (
    FOLDER,
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

ARRAY = "__array__"

MAX_HEADER = 2**20  # bytes of an array before its rows; a field takes about 20
OVERWRITTEN = "the disk is too slow: transitions were overwritten before they were saved"

SaveState = Callable[[Mapping[str, Any], Path], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingRows:
    """Transitions to write, and the chunks of those before them."""

    frozen: FrozenRows
    before: tuple[Chunk, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Saved:
    """A checkpoint whose files are verified; its transitions are verified while they load."""

    folder: Path
    manifest: Manifest
    counters: Mapping[str, float]
    run: State

    @property
    def opt_steps(self) -> int:
        return int(self.counters["opt_steps"])

    @property
    def has_rows(self) -> bool:
        """Whether the transitions were saved with it."""
        return self.manifest.replay is not None

    @property
    def chunks(self) -> tuple[Chunk, ...]:
        """The files of its transitions."""
        return () if self.manifest.replay is None else self.manifest.replay.chunks

    def load_rows(self, replay_buffer: ReplayBuffer) -> None:
        """Fills a buffer that has loaded its state; raises `CheckpointError` for damaged files.

        The buffer is empty then, until it loads another state.
        """
        load_chunks(self.folder.parent / FOLDER, self.chunks, replay_buffer)


def write_state(folder: Path, state: RunState, save_state: SaveState) -> None:
    """Writes all files of a checkpoint but the manifest and the transitions."""
    save_state(state.agent, folder / "agent.pt")
    arrays: dict[str, Any] = {}
    text = dumped({**state.counters, "run": state.run}, arrays)
    (folder / "state.json").write_text(text, encoding="utf-8")
    buffer = io.BytesIO()  # in memory: a full disk then fails in one plain write
    np.savez(buffer, **arrays)
    (folder / "arrays.npz").write_bytes(buffer.getvalue())


def write_best(
    folder: Path,
    agent: Mapping[str, Any],
    counters: Mapping[str, float],
    evaluation: Evaluation,
    save_state: SaveState,
) -> None:
    """Writes all files of a best model but the manifest."""
    save_state(agent, folder / "agent.pt")
    write_json(folder / "state.json", counters)
    found = asdict(replace(evaluation, film=None))
    # What no environment reported, and a film, which has a file of its own, are left out.
    write_json(
        folder / "score.json",
        {"score": evaluation.score, **counters, **{k: v for k, v in found.items() if v}},
    )


def read_checkpoint(folder: Path) -> Saved:
    """Verifies a checkpoint and reads all but its tensors and transitions.

    Raises `CheckpointError` naming the file and what is wrong.
    """
    manifest = verify(folder)
    with np.load(folder / "arrays.npz", allow_pickle=False) as arrays:
        state = read_json(folder / "state.json", partial(with_arrays, arrays))
    return Saved(folder=folder, manifest=manifest, run=state.pop("run"), counters=state)


class Resumable:
    """The checkpoints of a run directory, the newest first, each read when it is its turn.

    `rows`: with the transitions, where they were saved. A damaged checkpoint is skipped and later
    named. Raises CheckpointError where none is left.
    """

    newest: Saved  # verified but for its transitions
    agent: dict[str, Any]  # the state of its agent

    def __init__(
        self, folder: RunFolder, *, rows: bool, load_state: Callable[[Path], dict[str, Any]]
    ) -> None:
        self.run_dir = folder.path
        self._rows = rows
        self._load_state = load_state  # reads `agent.pt`
        self._left = iter(folder.checkpoints)
        self._damaged: list[CheckpointError] = []
        self._read_next()

    def _read_next(self) -> None:
        for folder in self._left:
            try:
                self.newest = read_checkpoint(folder)
                self.agent = self._load_state(folder / "agent.pt")
            except CheckpointError as error:
                self._damaged.append(error)
            else:
                return
        raise _nothing(self.run_dir, self._damaged)

    def into(self, resume: Callable[[Resumption], None]) -> Saved:
        """Has the newest whole checkpoint loaded by `resume`; names the damaged ones."""
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
            for each in self._damaged:
                log.error("%s; resuming from the previous checkpoint", each)
            return saved


def _nothing(run_dir: Path, damaged: list[CheckpointError]) -> CheckpointError:
    if not damaged:
        return CheckpointError(f"{run_dir} has no checkpoint to resume from")
    listed = "".join(f"\n  {each}" for each in dict.fromkeys(map(str, damaged)))
    return CheckpointError(
        f"{run_dir} has no complete checkpoint to resume from:{listed}\n"
        "If only files in checkpoints/replay are damaged, checkpoint.replay_buffer=false resumes "
        "without them"
    )


def dumped(tree: State, arrays: dict[str, NDArray[Any]]) -> str:
    """The tree as JSON; its arrays are added to `arrays` under names of their own.

    Raises `TypeError` for what a checkpoint cannot hold.
    """

    def stored(value: object) -> object:
        """Stands for a value that JSON does not know."""
        if isinstance(value, np.generic):
            return value.item()
        if isinstance(value, np.ndarray) and not value.dtype.hasobject:
            name = f"array_{len(arrays)}"
            arrays[name] = value
            return {ARRAY: name}
        raise TypeError(f"a checkpoint cannot store a {type(value).__name__}: {value!r:.80}")

    return json.dumps(tree, default=stored)


def with_arrays(arrays: Mapping[str, NDArray[Any]], found: dict[str, Any]) -> Any:
    """An object of `dumped`, or the array that it stands for."""
    return arrays[found[ARRAY]] if ARRAY in found else found


def write_chunks(folder: Path, rows: FrozenRows, written: Callable[[int], None]) -> list[Chunk]:
    """Writes all these rows and makes them survive a crash; reports the bytes to `written`."""
    folder.mkdir(exist_ok=True)
    chunks, first = [], rows.first
    while (arrays := rows.take()) is not None:
        content, end = _content(arrays), first + len(arrays[-1])
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


def _content(arrays: Sequence[NDArray[Any]]) -> bytes:
    content = io.BytesIO()
    for each in arrays:
        np.lib.format.write_array(content, each, version=(3, 0), allow_pickle=False)
    return content.getvalue()


def load_chunks(folder: Path, chunks: Sequence[Chunk], buffer: ReplayBuffer) -> None:
    """Puts all rows back and verifies every chunk before.

    Raises `CheckpointError` naming the file and what is wrong; the buffer is an empty one then.
    """
    for chunk in chunks:
        path = folder / chunk.name
        verify_file(path, chunk.sha256)
        with readable(path):
            arrays = _read(path)
        buffer.load_rows(chunk.first, arrays)


def _read(path: Path) -> list[NDArray[Any]]:
    arrays: list[NDArray[Any]] = []
    with path.open("rb") as file:
        while file.peek(1):
            arrays.append(
                np.lib.format.read_array(file, allow_pickle=False, max_header_size=MAX_HEADER)
            )
    return arrays
