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
    follows the share of the run.
    """

    initial: float
    final: float
    kind: Kind = Kind.linear
    steps: int | None = None

    def __str__(self) -> str:
        return f"{self.kind} from {self.initial:g} to {self.final:g} over {self.steps:,}"

    def at(self, count: int) -> float:
        """The value at this count."""
        assert self.steps is not None, "the settings of a run have all steps"
        return self.at_share(min(1.0, count / self.steps))

    def at_share(self, share: float) -> float:
        """The value where this share of the steps is over, 0 to 1."""
        if self.kind == Kind.exponential:
            return float(self.initial ** (1 - share) * self.final**share)
        if self.kind == Kind.cosine:
            share = (1 - math.cos(math.pi * share)) / 2
        return (1 - share) * self.initial + share * self.final


def value_at(setting: float | Schedule, count: int) -> float:
    """The value of a number or a schedule at this count."""
    return setting.at(count) if isinstance(setting, Schedule) else setting


def make_schedule(setting: Mapping[str, Any]) -> Schedule:
    """The schedule of a checked setting."""
    return Schedule(**{**setting, "kind": Kind(setting["kind"])})


def schedule_of(setting: float | Mapping[str, Any]) -> float | Schedule:
    """A checked setting as a number or a schedule."""
    return make_schedule(setting) if isinstance(setting, Mapping) else setting
