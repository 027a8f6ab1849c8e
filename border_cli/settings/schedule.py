"""Schedules: settings whose value changes in the course of a run.

In the settings, a schedule is a mapping with the keys `initial`, `final`, `kind` and `steps`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeAlias

# A number, or the mapping of a schedule. OmegaConf does not support such a union.
Scheduled: TypeAlias = Any

UPDATES = "updates"
ENV_STEPS = "env steps"  # sum over all actors, as counted by the learner
SCHEDULE_KEYS = ("initial", "final", "kind", "steps")


class Kind(StrEnum):
    """The shape of a schedule between its two values."""

    linear = "linear"
    cosine = "cosine"
    exponential = "exponential"


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """A number that changes from `initial` to `final` over `steps` of a counter, then stays there.

    It depends only on the counter, so a resumed run continues exactly, or, if `steps` is None, on
    the completed fraction of the run.
    """

    initial: float
    final: float
    kind: Kind = Kind.linear
    steps: int | None = None

    def __str__(self) -> str:
        return f"{self.kind} from {self.initial:g} to {self.final:g}"

    def at(self, count: int, done: float | None = None) -> float:
        """Returns the value at this count. If `steps` is None, `done` is the completed fraction of
        the run, 0 to 1, and `count` is ignored."""
        fraction = done if self.steps is None else min(1.0, count / self.steps)
        assert fraction is not None, "a schedule without steps needs `done`"
        if self.kind == Kind.exponential:
            return float(self.initial ** (1 - fraction) * self.final**fraction)
        if self.kind == Kind.cosine:
            fraction = (1 - math.cos(math.pi * fraction)) / 2
        return (1 - fraction) * self.initial + fraction * self.final


def value_at(setting: float | Schedule, count: int, done: float | None = None) -> float:
    """Returns the value of a number or schedule at this count or completed fraction of the run."""
    return setting.at(count, done) if isinstance(setting, Schedule) else setting


def make_schedule(setting: Mapping[str, Any]) -> Schedule:
    """Builds a schedule from a checked setting."""
    return Schedule(**{**setting, "kind": Kind(setting["kind"])})


def schedule_of(setting: float | Mapping[str, Any]) -> float | Schedule:
    """Converts a checked setting to a number or a schedule."""
    return make_schedule(setting) if isinstance(setting, Mapping) else setting
