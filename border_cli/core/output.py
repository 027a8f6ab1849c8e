"""Outputs of a run: metrics to recorders, weights to checkpoints."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from border_cli.core.interfaces import Evaluation, ReplayBuffer
from border_cli.core.types import Metrics, State

FILE_ONLY = {"file_only": True}  # `extra` of log records that go to border-train.log alone


@dataclass(frozen=True, slots=True, kw_only=True)
class RunState:
    """All of a run at one moment between two updates: what a checkpoint holds.

    Copies, except the transitions, which are frozen as the state is handed over.
    """

    counters: Mapping[str, float]  # opt_steps, env_steps, samples_total, time_s
    agent: Mapping[str, Any]  # `Agent.state_dict`
    run: State  # everything else
    replay_buffer: ReplayBuffer  # whose transitions are saved


@dataclass(frozen=True, slots=True, kw_only=True)
class Resumption:
    """A checkpoint as it was read."""

    counters: Mapping[str, float]
    run: State
    agent: Mapping[str, Any]
    load_rows: Callable[[ReplayBuffer], None] | None  # None: the transitions were not saved


@dataclass(frozen=True, slots=True, kw_only=True)
class SaveReport:
    """Counts and failures of the checkpoints so far."""

    written: int = 0  # the best models not counted
    failures: int = 0  # could not be written, best models included
    seconds: float = 0.0  # of the thread that writes
    nbytes: int = 0
    problem: str | None = None  # why the last attempt failed; None once one succeeds


class Checkpoints(Protocol):
    """Where the trainer leaves what must survive; called by the learner's thread only.

    A thread of its own writes. A disk that does not take it (an `OSError`) is reported immediately
    and counted, and never raises here.
    """

    @property
    def report(self) -> SaveReport:
        """Counts and failures of the checkpoints so far."""

    @property
    def busy(self) -> bool:
        """Whether a checkpoint is still being written."""

    def save(self, state: RunState) -> bool:
        """Hands a checkpoint over. False where one is being written: this one is left out."""

    def folder(self, opt_steps: int) -> Path:
        """Where the checkpoint after so many updates is."""

    def check(self) -> None:
        """Raises `RunDeleted` where a save found that files of the run were deleted."""

    def save_best(
        self, agent: Mapping[str, Any], counters: Mapping[str, float], evaluation: Evaluation
    ) -> None:
        """Hands the best model over, to be written in the background."""

    def wait(self, timeout_s: float | None = None) -> bool:
        """Waits until all that was handed over is on the disk or has failed; False: timed out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainerStats:
    """Counters and scores of the learner, over all attempts of its run."""

    opt_steps: int
    env_steps: int
    samples_total: int
    out_of_bounds: int  # samples with an observation beyond the bounds of its space
    duration_s: float
    evaluations: int
    best_score: float
    best_opt_steps: int | None
    last_score: float | None
    save_failures: int
    recorder_failures: int
    recorders_switched_off: Mapping[str, str] = field(default_factory=dict)  # class -> why
    saves: int = 0
    saves_skipped: int = 0  # another one was still being written
    save_seconds: float = 0.0  # of the thread that writes
    seconds: Mapping[str, float] = field(default_factory=dict)  # by section of the learner's time

    @property
    def samples_per_sec(self) -> float:
        return self.samples_total / self.duration_s if self.duration_s > 0 else 0.0

    @property
    def opt_per_sec(self) -> float:
        return self.opt_steps / self.duration_s if self.duration_s > 0 else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordStep:
    """Where in the run a row of metrics belongs."""

    opt_steps: int
    env_steps: int
    time_s: float  # since the run began


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Where the run is; sent to recorders several times a second, also in the warm-up."""

    step: RecordStep
    phase: str  # warm-up, learning, evaluating, saving, stopping
    samples_total: int
    gauges: Metrics  # newest values of all metrics, those of the actor manager among them
    problem: str | None = None  # what fails at present, such as a full disk


@dataclass(frozen=True, slots=True, kw_only=True)
class RunInfo:
    """The run that a recorder records."""

    name: str
    run_dir: Path
    max_opt_steps: int | None
    max_env_steps: int | None
    max_time_s: float | None
    quiet: bool = False
    group: Path | None = None  # the directory of the sweep or study that it belongs to
    best: tuple[float, int] | None = None  # score and opt steps, of the attempts before
    samples: bool = True  # actors collect samples; false for offline runs
    settings: Mapping[str, bool | float | str] = field(default_factory=dict)  # as they are typed
    command: Sequence[str] = ()  # of this attempt, as typed
    resolved: str = ""  # all settings, as YAML


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEnd:
    """How a run ended, as `run.json` says it."""

    status: str  # done, interrupted or failed
    best_score: float | None = None  # None: there was no evaluation
    exit_reason: str = ""
    summary: Mapping[str, Any] = field(default_factory=dict)  # the figures in `run.json`


class Recorder(ABC):
    """Takes metrics away; called by the learner's thread only.

    A recorder that raises does not end a run: the failure is logged and counted. After an `OSError`
    (a full disk) it is called again; after any other exception it is switched off.
    """

    @abstractmethod
    def write(self, step: RecordStep, metrics: Metrics, *, final: bool = False) -> None:
        """Records one row. `final` marks the evaluation that only the end of a run makes."""

    def show(self, progress: Progress) -> None:  # noqa: B027 - only a panel watches in between
        """Shows the progress of the run; records nothing."""

    def film(self, step: RecordStep, gif: bytes) -> None:  # noqa: B027 - only some keep films
        """Takes a short film of an evaluated episode, a GIF."""

    def position(self) -> State | None:
        """How far what was written reaches, for a checkpoint; None: nothing to go back to. A `file`
        in it, relative to the run directory, is on the disk before the checkpoint."""
        return None

    def rewind(self, position: Mapping[str, Any]) -> None:  # noqa: B027 - see above
        """Drops what was recorded after `position`: a resumed run records it again. Called before
        the first `write`."""

    def end(self, ended: RunEnd) -> None:  # noqa: B027 - only some record it
        """Takes how the run ended; `close` follows."""

    @abstractmethod
    def close(self) -> None:
        """Writes what is left; may be called twice."""

    def wait(self) -> None:  # noqa: B027 - only trackers deliver
        """Waits, for a limited time, for a delivery that continues after `close`. The end of the
        run is recorded by then, and no watchdog runs."""


Recorders = Sequence[Recorder]
