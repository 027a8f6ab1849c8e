"""What leaves a run: metrics to recorders, weights to checkpoints."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from border_cli.core.interfaces import Evaluation
from border_cli.core.types import Metrics


class Checkpoints(Protocol):
    """Where the trainer leaves what shall survive. An `OSError` does not end a run."""

    def save(self, state: Mapping[str, Any], counters: Mapping[str, float]) -> None:
        """Keeps a checkpoint named by `counters["opt_steps"]`, and drops the oldest."""

    def save_best(
        self, state: Mapping[str, Any], counters: Mapping[str, float], evaluation: Evaluation
    ) -> None:
        """Replaces the best model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordStep:
    """Where in the run a row of metrics belongs."""

    opt_steps: int
    env_steps: int
    time_s: float  # since the run began


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Where the run stands, for whoever watches; sent several times a second, also in warm-up."""

    step: RecordStep
    phase: str  # warm-up, learning, evaluating, saving, stopping
    samples_total: int
    gauges: Metrics  # newest values of all metrics, those of the actor manager among them


@dataclass(frozen=True, slots=True, kw_only=True)
class RunInfo:
    """What a recorder must know of the run it records."""

    name: str
    run_dir: Path
    max_opt_steps: int | None
    max_env_steps: int | None
    max_time_s: float | None
    quiet: bool = False


class Recorder(ABC):
    """Takes metrics away; called by the learner's thread only.

    An `OSError` of a recorder (a full disk) does not end a run: the trainer says so and counts it.
    """

    @abstractmethod
    def write(self, step: RecordStep, metrics: Metrics, *, final: bool = False) -> None:
        """Records one row. `final` marks the evaluation that only the end of a run makes."""

    def show(self, progress: Progress) -> None:  # noqa: B027 - only a panel watches in between
        """Shows where the run stands; nothing is recorded."""

    def flush(self) -> None:  # noqa: B027 - unbuffered recorders have nothing to do
        """Makes what was written readable by others."""

    @abstractmethod
    def close(self) -> None:
        """Writes what is left; may be called twice."""


Recorders = Sequence[Recorder]
