"""Time, handed in so that tests own it, and where the time of a thread goes."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Protocol

# What the learner does. `other` is the remainder: the loop itself, and stopping the actors.
LEARNER_SECTIONS = (
    *("wait", "push", "sample", "update", "priorities"),
    *("evaluate", "save", "record", "sync", "other"),
)
# What an actor does: the keys of `ActorStats.seconds`.
ACTOR_SECTIONS = ("act", "env_step", "process", "send", "blocked")


class Clock(Protocol):
    """A monotonic clock in seconds."""

    def now_s(self) -> float: ...


class MonotonicClock:
    """The machine's clock; never steps back."""

    def now_s(self) -> float:
        return time.monotonic()


class Timing:
    """Seconds per section; at any moment its thread is in exactly one of them.

    So nothing is counted twice and nothing is lost: the seconds of all sections add up to the time
    since `begin`, also where one section is within another. A change of section reads the clock
    once. Owned by one thread.
    """

    __slots__ = ("_now_s", "_seconds", "_section", "since_s")

    def __init__(self, clock: Clock) -> None:
        self._now_s = clock.now_s
        self.begin()

    def begin(self, spent: Mapping[str, float] | None = None) -> None:
        """Starts again in `other`, from zero or from what was `spent` before."""
        self._seconds = dict.fromkeys(LEARNER_SECTIONS, 0.0) | dict(spent or {})
        self._section = "other"
        self.since_s = self._now_s()  # when the section under way began: the clock as last read

    def enter(self, section: str) -> None:
        """Ends the section under way and begins this one."""
        now_s = self._now_s()
        self._seconds[self._section] += now_s - self.since_s
        self._section = section
        self.since_s = now_s

    @contextmanager
    def section(self, section: str) -> Iterator[None]:
        """Within the block the thread is in this section, afterwards in the one before."""
        outer = self._section
        self.enter(section)
        try:
            yield
        finally:
            self.enter(outer)

    def seconds(self) -> dict[str, float]:
        """Seconds spent in each section so far, the one under way included."""
        seconds = dict(self._seconds)
        seconds[self._section] += self._now_s() - self.since_s
        return seconds


class SharesSince:
    """The shares of the seconds that passed between two calls."""

    def __init__(self) -> None:
        self._before: Mapping[str, float] = {}

    def update(self, seconds: Mapping[str, float]) -> dict[str, float]:
        """Shares of the seconds since the last call."""
        before, self._before = self._before, seconds
        # Estimates may shrink, time does not.
        return shares({name: max(0.0, seconds[name] - before.get(name, 0.0)) for name in seconds})


def shares(seconds: Mapping[str, float]) -> dict[str, float]:
    """Each as a share of all, 0 … 1; empty where no time passed."""
    total_s = sum(seconds.values())
    return {name: each / total_s for name, each in seconds.items()} if total_s > 0 else {}


def summed(parts: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """The seconds of several threads, by section."""
    total: dict[str, float] = {}
    for seconds in parts:
        for name, each in seconds.items():
            total[name] = total.get(name, 0.0) + each
    return total
