"""Reading checkpoints back: what there is, whether it is whole, and what it holds."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from border_cli.core.errors import CheckpointError, ConfigError, reachable
from border_cli.core.files import SETTINGS, SWEEP_MARK
from border_cli.core.interfaces import ReplayBuffer
from border_cli.core.types import State
from border_cli.run.files import aside
from border_cli.run.manifest import FORMAT, Chunk, Manifest, read_json, read_manifest
from border_cli.run.replay_files import FOLDER, load_chunks, verify_file
from border_cli.run.rotation import by_age, folder_name, is_complete, numbered
from border_cli.run.tree import read_arrays, read_tree

COUNTERS = ("opt_steps", "env_steps", "samples_total", "time_s")
NEEDED = ("agent.pt", "state.json", "arrays.npz")  # to go on, beside the manifest
MOST_LISTED = 5  # runs that a message names


@dataclass(frozen=True, slots=True, kw_only=True)
class Saved:
    """A checkpoint whose files were as they were written; its rows are looked at as they load."""

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
    def candidate(self) -> Path | None:
        """The state of the agent that was under judgement."""
        path = self.folder / "candidate.pt"
        return path if path.name in self.manifest.sha256 else None

    @property
    def has_rows(self) -> bool:
        """Whether the replay buffer was saved with it."""
        return self.manifest.replay is not None

    @property
    def chunks(self) -> tuple[Chunk, ...]:
        """The files of its rows."""
        return () if self.manifest.replay is None else self.manifest.replay.chunks

    def load_rows(self, replay_buffer: ReplayBuffer) -> None:
        """Fills a buffer that has loaded its state; raises `CheckpointError` for damaged rows.

        The buffer is an empty one then, until it loads another state.
        """
        if self.manifest.replay is None:
            raise CheckpointError(f"{self.folder} was saved without a replay buffer")
        load_chunks(_replay_folder(self.folder), self.manifest.replay, replay_buffer)


def _replay_folder(checkpoint: Path) -> Path:
    return checkpoint.parent / FOLDER


def resumable(run_dir: Path) -> list[Path]:
    """The complete checkpoints that a run may go on from, the newest first; not verified yet.

    Before them those whose manifest is damaged, so that whoever looks for a whole one names them.
    """
    newest_first = by_age(run_dir / "checkpoints")[::-1]
    return [
        each.folder for each in sorted(newest_first, key=lambda each: each.manifest is not None)
    ]


def read_checkpoint(folder: Path, *, rows: bool = True) -> Saved:
    """Verifies a checkpoint and reads all but its tensors and rows.

    Raises `CheckpointError` naming the file and what is wrong. Without `rows` it does not matter
    whether those are there.
    """
    manifest = read_manifest(folder)
    if manifest.format != FORMAT:
        raise CheckpointError(
            f"{folder} has format {manifest.format} and cannot be resumed: it contains neither the "
            "replay buffer nor the random generators. init_from starts a new run from its weights"
        )
    missing = [name for name in NEEDED if name not in manifest.sha256]
    if missing:
        raise CheckpointError(f"{folder} cannot be resumed: it has no {', no '.join(missing)}")
    _verify_files(folder, manifest)
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


def steps_saved(run_dir: Path) -> list[int]:
    """The optimisation steps of the complete checkpoints, in rising order."""
    return [int(each.name) for each in numbered(run_dir / "checkpoints")]


@reachable(CheckpointError)
def find_run(place: Path, checkpoint: str | None = None) -> tuple[Path, str | None]:
    """The run directory, and which of its checkpoints, that `place` and `checkpoint` name.

    `place` is a run directory, or a checkpoint in one: `RUN/best`, `RUN/checkpoints/5000`. The
    checkpoint is None where neither names one. Raises `CheckpointError` for any other path, and
    `ConfigError` for two checkpoints.
    """
    run_dir, named = place, _checkpoint_named_by(place)
    if named is not None:
        run_dir, which = named
        if checkpoint not in (None, which):
            raise ConfigError(
                f"{place} is a checkpoint: remove checkpoint={checkpoint}, or use {run_dir}"
            )
        return run_dir, which
    if (place / SETTINGS).is_file():
        return place, checkpoint
    if not place.is_dir():
        file = f"{place} is a file, not a run directory"
        what = file if place.exists() else f"no such directory: {place}"
        raise CheckpointError(f"{what}{_run_around(place)}")
    what = f"is not a run directory: it has no {SETTINGS}"
    if (place / SWEEP_MARK).exists():
        what = "is the directory of a sweep, not of a run"
    raise CheckpointError(f"{place} {what}{_run_around(place) or _runs_in(place)}")


def _checkpoint_named_by(place: Path) -> tuple[Path, str] | None:
    """The run directory, and the checkpoint of it that a path leads to; need not exist."""
    whole = place.absolute()
    if whole.name == "best" and (whole.parent / SETTINGS).is_file():
        return whole.parent, "best"
    run_dir = whole.parent.parent
    if whole.parent.name != "checkpoints" or not (run_dir / SETTINGS).is_file():
        return None
    if whole.name == "latest":
        return run_dir, "latest"
    if whole.name.isdecimal():
        return run_dir, str(int(whole.name))
    return (run_dir, "best") if whole == (run_dir / "best").resolve() else None


def _run_around(place: Path) -> str:
    """The run that a checkpoint or a file of it belongs to."""
    parents = place.absolute().parents
    around = next((each for each in parents if (each / SETTINGS).is_file()), None)
    return f"; the run is {around}" if around else ""


def _runs_in(place: Path) -> str:
    """The runs of a sweep, or of one name."""
    runs = [each.parent.parent for each in place.glob(f"*/{SETTINGS}")]
    runs.sort(key=lambda each: (len(each.name), each.name))  # 9 before 10
    if not runs:
        return ""
    more = f" and {len(runs) - MOST_LISTED} more" if len(runs) > MOST_LISTED else ""
    return f". Choose one of the runs in it: {', '.join(map(str, runs[:MOST_LISTED]))}{more}"


@reachable(CheckpointError)
def find_checkpoint(run_dir: Path, which: str) -> Path:
    """The folder of `best`, `latest` or a number of optimisation steps; raises with what there is.

    The answer is the real folder, so that a link which moves on does not change what is read.
    """
    if not run_dir.is_dir():
        raise CheckpointError(f"no such directory: {run_dir}")
    saved = steps_saved(run_dir)
    if which == "best":
        place = run_dir / "best"
    elif which == "latest":
        place = run_dir / "checkpoints" / "latest"
        if saved and not is_complete(place):
            place = place.with_name(folder_name(saved[-1]))
    elif which.isdecimal():
        place = run_dir / "checkpoints" / folder_name(int(which))
    else:
        raise CheckpointError(f"checkpoint must be best, latest or an update number, got {which!r}")
    folder = place.resolve()
    if not is_complete(folder) and is_complete(aside(folder)):
        return aside(folder)  # the process was killed while it replaced this one
    if not is_complete(folder):
        known = [*(["best"] if is_complete(run_dir / "best") else []), *saved]
        listed = ", ".join(map(str, known))
        choices = f"choose from {listed}" if known else "there are none"
        raise CheckpointError(f"{run_dir} has no checkpoint {which} ({choices})")
    return folder


@reachable(CheckpointError)
def find_weights(place: Path) -> Path:
    """The folder, whole, of the weights that a new run begins with: of a run directory its best
    model, else its latest checkpoint; or a checkpoint itself. Neither needs saved settings."""
    folder = place
    if not is_complete(place):
        has_models = is_complete(place / "best") or steps_saved(place)
        run_dir, which = (place, None) if has_models else find_run(place)
        best = "best" if is_complete(run_dir / "best") else "latest"
        folder = find_checkpoint(run_dir, which or best)
    verify(folder)
    return folder


def best_score(run_dir: Path) -> tuple[float, int] | None:
    """Score and optimisation steps of the best model; None where there is none that is whole."""
    try:
        folder = find_checkpoint(run_dir, "best")
        verify(folder)
        document = read_json(folder / "score.json")
        score, opt_steps = document["score"], document["opt_steps"]
    except (CheckpointError, KeyError):
        return None
    whole = isinstance(score, int | float) and isinstance(opt_steps, int) and abs(score) < math.inf
    return (float(score), opt_steps) if whole else None


def episodes_of_best(run_dir: Path) -> int | None:
    """How many episodes the score of the best model is the mean of; None where nobody says."""
    try:
        returns = read_json(find_checkpoint(run_dir, "best") / "score.json")["returns"]
    except (CheckpointError, KeyError):
        return None
    return len(returns) if isinstance(returns, list) and returns else None


def verify(folder: Path) -> None:
    """Raises `CheckpointError` naming the first file that is not as it was written."""
    _verify_files(folder, read_manifest(folder))


def _verify_files(folder: Path, manifest: Manifest) -> None:
    for name, expected in manifest.sha256.items():
        verify_file(folder / name, expected)
