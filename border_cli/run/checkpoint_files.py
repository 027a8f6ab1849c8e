"""The files of one checkpoint: written, verified, read; a resume takes the newest whole one.

checkpoints/0000010000/        agent.pt  state.json  arrays.npz  manifest.json
checkpoints/best-0000007000/   agent.pt  state.json  score.json  manifest.json
checkpoints/replay/            rows-<first>-<end>-<token>.<block>.npy, shared by the numbered ones;
                               ….shared.npy: frames to which these rows refer
checkpoints/latest, best       relative links to the newest and to the best

agent.pt        the state of the agent, tensors and numbers
state.json      the counters, and under "run" the tree of everything else. There
                `{"__array__": name}` stands for an array of arrays.npz, and `{"__float__": word}`
                for a float that JSON does not know; neither can hold code
arrays.npz      the arrays of that tree
manifest.json   written last, so a folder without one is not complete: format, sequence, versions,
                a SHA-256 of every file and chunk, and a checksum of its own entries
"""

from __future__ import annotations

import io
import json
import logging
import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from border_cli.core.errors import CheckpointError
from border_cli.core.files import require_stored, sync, write_json
from border_cli.core.interfaces import Evaluation, ReplayBuffer
from border_cli.core.output import Resumption
from border_cli.core.types import State
from border_cli.run.finding import resumable
from border_cli.run.manifest import FOLDER, Chunk, Manifest, read_json, read_manifest, verify_files
from border_cli.run.replay_files import PendingRows, load_chunks

log = logging.getLogger(__name__)

COUNTERS = ("opt_steps", "env_steps", "samples_total", "out_of_bounds", "time_s")
NEEDED = ("agent.pt", "state.json", "arrays.npz")  # to resume, besides the manifest
ARRAY = "__array__"
FLOAT = "__float__"

Arrays = dict[str, NDArray[Any]]
SaveState = Callable[[Mapping[str, Any], Path], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingCheckpoint:
    """All of a checkpoint, on its way from the learner to the writing thread."""

    counters: Mapping[str, float]
    agent: Mapping[str, Any]
    run: State
    rows: PendingRows | None


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
    def agent(self) -> Path:
        """The state of the agent."""
        return self.folder / "agent.pt"

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
        if self.manifest.replay is None:
            raise CheckpointError(f"{self.folder} was saved without a replay buffer")
        load_chunks(_replay_folder(self.folder), self.manifest.replay, replay_buffer)


def _replay_folder(checkpoint: Path) -> Path:
    return checkpoint.parent / FOLDER


def write_state(folder: Path, pending: PendingCheckpoint, save_state: SaveState) -> None:
    """Writes all files of a checkpoint but the manifest."""
    _write_agent(folder / "agent.pt", pending.agent, save_state)
    arrays: Arrays = {}
    state = split_arrays({**pending.counters, "run": pending.run}, arrays)
    (folder / "state.json").write_text(json.dumps(state, allow_nan=False), encoding="utf-8")
    (folder / "arrays.npz").write_bytes(npz_bytes(arrays))
    for name in ("state.json", "arrays.npz"):
        sync(folder / name)


def write_best(
    folder: Path,
    agent: Mapping[str, Any],
    counters: Mapping[str, float],
    evaluation: Evaluation,
    save_state: SaveState,
) -> None:
    """Writes all files of a best model but the manifest."""
    _write_agent(folder / "agent.pt", agent, save_state)
    write_json(folder / "state.json", counters)
    found = asdict(replace(evaluation, film=None))
    # What no environment reported, and a film, which has a file of its own, are left out.
    score = {"score": evaluation.score, **counters, **{k: v for k, v in found.items() if v}}
    write_json(folder / "score.json", score)


def _write_agent(path: Path, agent: Mapping[str, Any], save_state: SaveState) -> None:
    save_state(agent, path)
    sync(path)


def read_checkpoint(folder: Path, *, rows: bool = True) -> Saved:
    """Verifies a checkpoint and reads all but its tensors and transitions.

    Raises `CheckpointError` naming the file and what is wrong. Without `rows` the files
    of transitions may be missing.
    """
    manifest = read_manifest(folder)
    missing = [name for name in NEEDED if name not in manifest.sha256]
    if missing:
        raise CheckpointError(f"{folder} cannot be resumed: it has no {', no '.join(missing)}")
    verify_files(folder, manifest)
    for chunk in manifest.replay.chunks if manifest.replay and rows else ():
        for name in chunk.files:
            if not (_replay_folder(folder) / name).is_file():
                raise CheckpointError(f"{_replay_folder(folder) / name} is missing")
    state = read_json(folder / "state.json")
    run = read_tree(folder / "state.json", state.pop("run", None), read_arrays(folder / NEEDED[2]))
    return Saved(
        folder=folder, manifest=manifest, counters=_counters(folder / "state.json", state), run=run
    )


def _counters(path: Path, state: Mapping[str, Any]) -> dict[str, float]:
    for name in COUNTERS:
        if name not in state:
            raise CheckpointError(f"{path} has no {name}")
    for name, value in state.items():
        whole = isinstance(value, int | float) and not isinstance(value, bool)
        if not (whole and 0 <= value < math.inf):
            raise CheckpointError(f"{path}: {name} must be a count, got {value!r}")
    return dict(state)


class Resumable:
    """The checkpoints of a run directory, the newest first, each read when it is its turn.

    `rows`: with the transitions, where they were saved. A damaged checkpoint is skipped and later
    named. Raises CheckpointError where none is left.
    """

    newest: Saved  # verified but for its transitions
    agent: dict[str, Any]  # the state of its agent

    def __init__(
        self, run_dir: Path, *, rows: bool, load_state: Callable[[Path], dict[str, Any]]
    ) -> None:
        self.run_dir = run_dir
        self._rows = rows
        self._load_state = load_state  # reads `agent.pt`
        self._left = iter(resumable(run_dir))
        self._damaged: list[CheckpointError] = []
        self._read_next()

    def _read_next(self) -> None:
        for folder in self._left:
            try:
                self.newest = read_checkpoint(folder, rows=self._rows)
                self.agent = self._load_state(self.newest.agent)
            except CheckpointError as error:
                self._damaged.append(error)
            else:
                return
        raise _nothing(self.run_dir, self._damaged)

    def into(self, resume: Callable[[Resumption], None]) -> Saved:
        """Has the newest whole checkpoint loaded by `resume`; names the damaged ones."""
        while True:
            saved = self.newest
            try:
                resume(self._resumption(saved))
            except CheckpointError as error:
                self._damaged.append(error)
                self._read_next()
                continue
            for each in self._damaged:
                log.error("%s; resuming from the previous checkpoint", each)
            return saved

    def _resumption(self, saved: Saved) -> Resumption:
        return Resumption(
            counters=saved.counters,
            run=saved.run,
            agent=self.agent,
            load_rows=saved.load_rows if self._rows and saved.has_rows else None,
        )


def _nothing(run_dir: Path, damaged: list[CheckpointError]) -> CheckpointError:
    if not damaged:
        return CheckpointError(f"{run_dir} has no checkpoint to resume from")
    listed = "".join(f"\n  {each}" for each in dict.fromkeys(map(str, damaged)))
    return CheckpointError(
        f"{run_dir} has no complete checkpoint to resume from:{listed}\n"
        "If only files in checkpoints/replay are damaged, checkpoint.replay_buffer=false resumes "
        "without them"
    )


def split_arrays(tree: Any, arrays: Arrays) -> Any:
    """The tree as JSON knows it; its arrays are added to `arrays` under names of their own.

    Raises `TypeError` for what a checkpoint cannot hold.
    """
    if isinstance(tree, np.ndarray):
        if tree.dtype.hasobject:
            raise TypeError("a checkpoint cannot store arrays of Python objects")
        name = f"array_{len(arrays)}"
        arrays[name] = tree
        return {ARRAY: name}
    if isinstance(tree, np.generic):
        return split_arrays(tree.item(), arrays)
    if isinstance(tree, float):
        return tree if math.isfinite(tree) else {FLOAT: repr(tree)}
    if tree is None or isinstance(tree, bool | int | str):
        return tree
    if isinstance(tree, Mapping):
        return {_key(key): split_arrays(each, arrays) for key, each in tree.items()}
    if isinstance(tree, list | tuple):
        return [split_arrays(each, arrays) for each in tree]
    raise TypeError(f"a checkpoint cannot store a {type(tree).__name__}: {tree!r:.80}")


def _key(key: Any) -> str:
    if not isinstance(key, str) or key in (ARRAY, FLOAT):
        raise TypeError(f"a checkpoint cannot store the key {key!r}")
    return key


def join_arrays(tree: Any, arrays: Mapping[str, NDArray[Any]]) -> Any:
    """What `split_arrays` was given; raises `KeyError` or `ValueError` where it is not whole."""
    if isinstance(tree, list):
        return [join_arrays(each, arrays) for each in tree]
    if not isinstance(tree, dict):
        return tree
    if ARRAY in tree:
        return arrays[tree[ARRAY]]
    if FLOAT in tree:
        return float(tree[FLOAT])
    return {key: join_arrays(each, arrays) for key, each in tree.items()}


def npz_bytes(arrays: Arrays) -> bytes:
    """The arrays as an `.npz`, in memory: a full disk then fails in one plain write."""
    buffer, content = io.BytesIO(), dict[str, Any](arrays)
    np.savez(buffer, **content)
    return buffer.getvalue()


def read_arrays(path: Path) -> Arrays:
    """The arrays of an `.npz`; raises `CheckpointError` for anything else, pickles included."""
    try:
        require_stored(path)
        with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
            return {name: file[name] for name in file.files}
    except Exception as error:  # a damaged file may raise anything
        raise CheckpointError(f"{path} cannot be read: {error}") from error


def read_tree(path: Path, tree: Any, arrays: Arrays) -> State:
    """The tree of a document that stands at `path`; raises `CheckpointError`."""
    try:
        whole = join_arrays(tree, arrays)
    except (KeyError, ValueError, TypeError, RecursionError) as error:
        raise CheckpointError(f"{path} cannot be read: {error!r}") from error
    if not isinstance(whole, dict):
        raise CheckpointError(f"{path} does not contain the state of a run")
    return whole
