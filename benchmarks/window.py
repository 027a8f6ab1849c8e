"""A recorder that times a window of its run."""

from __future__ import annotations

import time
from dataclasses import dataclass

from benchmarks.bare import now, speed_between
from benchmarks.machine import tree_cpu_s
from benchmarks.table import Reading
from border_cli.core.output import Recorder, RecordStep
from border_cli.core.stop import StopFlag
from border_cli.core.types import Metrics


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """The part of a run that is timed; it ends at the limit that is reached first."""

    settled: int  # updates before it begins, to warm up threads, caches, allocators
    settled_s: float = 0.0  # seconds before it begins, since all actors have delivered samples
    updates: int | None = None
    seconds: float | None = None


class Over(BaseException):
    """Stops the run after the window. Not an `Exception`: failures of recorders are caught."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """Counters and clocks of a run at one time."""

    opt_steps: int
    samples: float
    times: tuple[float, float]
    tree_s: float


class Window(Recorder):
    """A recorder that times a span of a run between two rows; called by the learner thread.

    The span begins once all actors have delivered samples; at its end, the run is stopped.
    """

    def __init__(self, span: Span, *, actors: int, stop: StopFlag) -> None:
        self._span, self._stop = span, stop
        self._created_s = time.perf_counter()
        self._silent = set(range(actors))  # ids of actors that have not yet delivered
        self._all_deliver_s: float | None = None
        self._began: Moment | None = None
        self._ended: Moment | None = None
        self.trace: list[tuple[int, float, float]] = []  # (updates, samples, seconds) of every row
        self.returns: list[float] = []  # returns of training episodes, one per row with episodes

    def write(self, step: RecordStep, metrics: Metrics, *, final: bool = False) -> None:
        if final or self._ended is not None or "async/samples_total" not in metrics:
            return
        if "episode/return" in metrics:
            self.returns.append(metrics["episode/return"])
        samples = metrics["async/samples_total"]
        self.trace.append((step.opt_steps, samples, time.perf_counter()))
        if self._began is None:
            if self._settled(step.opt_steps, metrics):
                self._began = _moment(step.opt_steps, samples)
                self.trace = self.trace[-1:]
        elif self._long_enough(step.opt_steps, self._began):
            self._ended = _moment(step.opt_steps, samples)
            self._stop.request(Over())

    def _settled(self, opt_steps: int, metrics: Metrics) -> bool:
        self._silent -= {
            actor_id
            for actor_id in self._silent
            if metrics.get(f"actor/{actor_id}/samples_per_sec", 0.0) > 0
        }
        if self._silent:
            return False
        now_s = time.perf_counter()
        self._all_deliver_s = self._all_deliver_s or now_s
        span = self._span
        return opt_steps >= span.settled and now_s - self._all_deliver_s >= span.settled_s

    def _long_enough(self, opt_steps: int, began: Moment) -> bool:
        span, elapsed_s = self._span, time.perf_counter() - began.times[0]
        enough_updates = span.updates is not None and opt_steps - began.opt_steps >= span.updates
        return enough_updates or (span.seconds is not None and elapsed_s >= span.seconds)

    def reading(self) -> Reading:
        """Returns the results; `wall_s` is the time from the creation of the recorder."""
        assert self._began is not None, "the run ended before its window began"
        assert self._ended is not None, "the run ended before its window did"
        began, ended = self._began, self._ended
        updates = ended.opt_steps - began.opt_steps
        samples = ended.samples - began.samples
        elapsed_s, learner_s = (ended.times[clock] - began.times[clock] for clock in range(2))
        tree_s = ended.tree_s - began.tree_s
        return {
            **speed_between(began.times, ended.times, updates)._asdict(),
            "samples_per_s": samples / elapsed_s,
            "actors_us": 1e6 * (tree_s - learner_s) / samples if samples else 0.0,
            "cores": tree_s / elapsed_s,
            "wall_s": ended.times[0] - self._created_s,
            "updates": ended.opt_steps,
            "samples": ended.samples,
        }

    def close(self) -> None:
        """Does nothing: there is nothing to close."""


def _moment(opt_steps: int, samples: float) -> Moment:
    return Moment(opt_steps=opt_steps, samples=samples, times=now(), tree_s=tree_cpu_s())
