"""Clocks that tests can replace, and the time that a thread spends, by section."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Protocol

# Sections of the learner. `other` is the remainder: the loop itself, and stopping the actors.
LEARNER_SECTIONS = (
    *("wait", "push", "sample", "update", "priorities"),
    *("evaluate", "save", "record", "sync", "other"),
)
# Sections of an actor: the keys of `ActorStats.seconds`.
ACTOR_SECTIONS = ("act", "env_step", "process", "send", "blocked")


class Clock(Protocol):
    """A monotonic clock in seconds."""

    def now_s(self) -> float: ...


class MonotonicClock:
    """The monotonic clock of the machine."""

    def now_s(self) -> float:
        return time.monotonic()


class Timing:
    """Seconds per section; at any moment the thread is in exactly one section.

    Nothing is counted twice or lost: the seconds of all sections add up to the time since `begin`,
    even if sections are nested. A change of section reads the clock once. Owned by one thread.
    """

    __slots__ = ("_now_s", "_seconds", "_section", "since_s")

    def __init__(self, clock: Clock) -> None:
        self._now_s = clock.now_s
        self.begin()

    def begin(self, spent: Mapping[str, float] | None = None) -> None:
        """Restarts in section `other`, from zero or from the seconds already `spent`."""
        self._seconds = dict.fromkeys(LEARNER_SECTIONS, 0.0) | dict(spent or {})
        self._section = "other"
        self.since_s = self._now_s()  # start of the current section: the last reading of the clock

    def enter(self, section: str) -> None:
        """Ends the current section and enters this one."""
        now_s = self._now_s()
        self._seconds[self._section] += now_s - self.since_s
        self._section = section
        self.since_s = now_s

    @contextmanager
    def section(self, section: str) -> Iterator[None]:
        """Enters a section for the block, and returns to the previous one afterwards."""
        outer = self._section
        self.enter(section)
        try:
            yield
        finally:
            self.enter(outer)

    def seconds(self) -> dict[str, float]:
        """Returns the seconds spent in each section so far, including the current one."""
        seconds = dict(self._seconds)
        seconds[self._section] += self._now_s() - self.since_s
        return seconds


class SharesSince:
    """The fractions of time by section, between two calls of `update`."""

    def __init__(self) -> None:
        self._before: Mapping[str, float] = {}

    def update(self, seconds: Mapping[str, float]) -> dict[str, float]:
        """Returns the fractions of time since the last call, by section."""
        before, self._before = self._before, seconds
        # Estimates may decrease; time does not.
        return shares({name: max(0.0, seconds[name] - before.get(name, 0.0)) for name in seconds})


def shares(seconds: Mapping[str, float]) -> dict[str, float]:
    """Returns each section as a fraction of the total, 0 … 1; empty if no time has passed."""
    total_s = sum(seconds.values())
    return {name: part_s / total_s for name, part_s in seconds.items()} if total_s > 0 else {}


def sum_seconds(parts: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """Adds up the seconds of several threads, by section."""
    total: dict[str, float] = {}
    for seconds in parts:
        for name, part_s in seconds.items():
            total[name] = total.get(name, 0.0) + part_s
    return total
