"""What the learner did, in figures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainerStats:
    """What the learner did, in all attempts of its run."""

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
    save_seconds: float = 0.0  # beside the learner
    seconds: Mapping[str, float] = field(default_factory=dict)  # by section of the learner's time

    @property
    def samples_per_sec(self) -> float:
        return self.samples_total / self.duration_s if self.duration_s > 0 else 0.0

    @property
    def opt_per_sec(self) -> float:
        return self.opt_steps / self.duration_s if self.duration_s > 0 else 0.0
