"""Settings that may change in the course of a run: a number, or a schedule that it follows.

As a setting, a schedule is a mapping of `initial`, `final`, `kind` and `steps`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeAlias

# A number, or the mapping of a schedule: OmegaConf has no union of the two.
Scheduled: TypeAlias = Any

UPDATES = "updates"
ENV_STEPS = "env steps"  # of all actors, as the learner counts them
SCHEDULE_KEYS = ("initial", "final", "kind", "steps")


class Kind(StrEnum):
    """How a schedule moves between its two values."""

    linear = "linear"
    cosine = "cosine"
    exponential = "exponential"


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """A number that moves from `initial` to `final` over `steps` of its counter, and stays there.

    It depends on that counter alone, so that a resumed run continues exactly. Without `steps` it
    depends on the share of the run that is done.
    """

    initial: float
    final: float
    kind: Kind = Kind.linear
    steps: int | None = None

    def __str__(self) -> str:
        return f"{self.kind} from {self.initial:g} to {self.final:g}"

    def at(self, count: int, done: float | None = None) -> float:
        """The value at this count, or without `steps` where this share of the run is done, 0 to
        1."""
        share = done if self.steps is None else min(1.0, count / self.steps)
        assert share is not None, "only a schedule of the replay buffer may be without steps"
        if self.kind == Kind.exponential:
            return float(self.initial ** (1 - share) * self.final**share)
        if self.kind == Kind.cosine:
            share = (1 - math.cos(math.pi * share)) / 2
        return (1 - share) * self.initial + share * self.final


def value_at(setting: float | Schedule, count: int, done: float | None = None) -> float:
    """The value of a number or a schedule at this count, or share of the run."""
    return setting.at(count, done) if isinstance(setting, Schedule) else setting


def make_schedule(setting: Mapping[str, Any]) -> Schedule:
    """The schedule of a checked setting."""
    return Schedule(**{**setting, "kind": Kind(setting["kind"])})


def schedule_of(setting: float | Mapping[str, Any]) -> float | Schedule:
    """A checked setting as a number or a schedule."""
    return make_schedule(setting) if isinstance(setting, Mapping) else setting
