"""The outputs of a run: metrics for recorders, and weights and state for checkpoints."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from border_cli.core.interfaces import Evaluation, ReplayBuffer
from border_cli.core.types import Metrics, State

FILE_ONLY = {"file_only": True}  # `extra` of log records for border-train.log only


@dataclass(frozen=True, slots=True, kw_only=True)
class RunState:
    """The complete state of a run between two updates, as a checkpoint contains it.

    All parts are copies except the transitions, of which `Checkpoints.save` takes a snapshot.
    """

    counters: Mapping[str, float]  # opt_steps, env_steps, samples_total, out_of_bounds, time_s
    agent: Mapping[str, Any]  # `Agent.state_dict`
    run: State  # everything else
    replay_buffer: ReplayBuffer  # source of the transitions


@dataclass(frozen=True, slots=True, kw_only=True)
class Resumption:
    """A checkpoint loaded from disk."""

    counters: Mapping[str, float]
    run: State
    agent: Mapping[str, Any]
    load_rows: Callable[[ReplayBuffer], None] | None  # None if no transitions were saved


@dataclass(frozen=True, slots=True, kw_only=True)
class SaveReport:
    """Counts and failures of the checkpoints so far."""

    written: int = 0  # checkpoints written, best models not included
    failures: int = 0  # failed writes, including those of best models
    seconds: float = 0.0  # time spent by the writer thread
    nbytes: int = 0
    problem: str | None = None  # reason why the last write failed; None if it succeeded


class Checkpoints(Protocol):
    """A store of checkpoints and best models; called by the learner's thread only.

    A separate thread writes them. Only deleted files raise an error here, in `check`; any other
    failure is logged immediately and counted.
    """

    @property
    def report(self) -> SaveReport:
        """Counts and failures of the checkpoints so far."""

    @property
    def busy(self) -> bool:
        """True while a checkpoint is being written."""

    def save(self, state: RunState) -> bool:
        """Submits a checkpoint; returns False, without saving, while another is being written."""

    def folder(self, opt_steps: int) -> Path:
        """Returns the directory of the checkpoint after `opt_steps` updates."""

    def check(self) -> None:
        """Raises `RunDeleted` if a save found that files of the run were deleted."""

    def save_best(
        self, agent: Mapping[str, Any], counters: Mapping[str, float], evaluation: Evaluation
    ) -> None:
        """Submits the best model, to be written in the background."""

    def wait(self, timeout_s: float | None = None) -> bool:
        """Waits until everything submitted is on disk or has failed; returns False on timeout."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainerStats:
    """Counters and scores of the learner over all attempts of its run. What concerns checkpoints
    and recorders (saves, failures, writing time) is of the current attempt only."""

    opt_steps: int
    env_steps: int
    samples_total: int
    out_of_bounds: int  # samples with an observation outside the bounds of its space
    duration_s: float
    evaluations: int
    best_score: float
    best_opt_steps: int | None
    last_score: float | None
    save_failures: int
    recorder_failures: int
    recorders_switched_off: Mapping[str, str] = field(default_factory=dict)  # class -> reason
    saves: int = 0
    saves_skipped: int = 0  # due while another checkpoint was being written
    save_seconds: float = 0.0  # time spent by the writer thread
    seconds: Mapping[str, float] = field(default_factory=dict)  # learner's time by section

    @property
    def samples_per_sec(self) -> float:
        return self.samples_total / self.duration_s if self.duration_s > 0 else 0.0

    @property
    def opt_per_sec(self) -> float:
        return self.opt_steps / self.duration_s if self.duration_s > 0 else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordStep:
    """The position in a run to which a row of metrics belongs."""

    opt_steps: int
    env_steps: int
    time_s: float  # since the start of the run


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """The progress of a run, sent to recorders several times a second, even in the warm-up."""

    step: RecordStep
    phase: str  # warm-up, collecting, learning, evaluating, stopping
    samples_total: int
    gauges: Metrics  # newest values of all metrics, including those of the actor manager
    problem: str | None = None  # current failure, such as a full disk


@dataclass(frozen=True, slots=True, kw_only=True)
class RunInfo:
    """A description of a run, for recorders and callbacks."""

    name: str
    run_dir: Path
    max_opt_steps: int | None
    max_env_steps: int | None
    max_time_s: float | None
    quiet: bool = False
    group: Path | None = None  # directory of the sweep or study, if the run is part of one
    best: tuple[float, int] | None = None  # best score of earlier attempts, and its opt steps
    samples: bool = True  # whether actors collect samples; False for offline runs
    settings: Mapping[str, bool | float | str] = field(default_factory=dict)  # dotted name -> value
    command: Sequence[str] = ()  # command line of this attempt
    resolved: str = ""  # all settings, as YAML


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEnd:
    """How a run ended, as recorded in `run.json`."""

    status: str  # done, interrupted or failed
    best_score: float | None = None  # None if there was no evaluation
    exit_reason: str = ""
    summary: Mapping[str, Any] = field(default_factory=dict)  # figures recorded in `run.json`


class Recorder(ABC):
    """Base class of recorders, which store metrics; called by the learner's thread only.

    A `BorderError` in a recorder ends the run. Any other exception is logged and counted. After an
    `OSError` (a full disk) the recorder is called again; after any other it is switched off.
    """

    @property
    def recorder_name(self) -> str:
        """The name in messages and checkpoints; recorders of one class need different ones."""
        return type(self).__name__

    @abstractmethod
    def write(self, step: RecordStep, metrics: Metrics, *, final: bool = False) -> None:
        """Records one row. `final` marks an evaluation made only because the run ended."""

    def show(self, progress: Progress) -> None:  # noqa: B027 - only the panel shows it
        """Shows the progress of the run; records nothing."""

    def film(self, step: RecordStep, gif: bytes) -> None:  # noqa: B027 - only some record films
        """Records a short film of an evaluated episode, as a GIF."""

    def position(self) -> State | None:
        """Returns the position after the last row, for a checkpoint; None if it cannot be rewound.
        A `file` in it, relative to the run directory, is synced before the checkpoint."""
        return None

    def rewind(self, position: Mapping[str, Any]) -> None:  # noqa: B027 - see above
        """Drops the rows after `position`, because a resumed run records them again. Called before
        the first `write`."""

    def end(self, ended: RunEnd) -> None:  # noqa: B027 - only some record it
        """Records how the run ended; `close` follows."""

    @abstractmethod
    def close(self) -> None:
        """Writes all buffered rows; may be called twice."""

    def wait(self) -> None:  # noqa: B027 - only trackers need it
        """Waits, for a limited time, for uploads that continue after `close`. By then the end of
        the run is recorded and the watchdog has stopped."""


Recorders = Sequence[Recorder]
