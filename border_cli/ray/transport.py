"""Actors on a Ray cluster, called without ever waiting: what returns is reported to a queue.

Ray tells of each call that is over in a thread of its own, which puts a report into the queue and
wakes the broker. Weights are sent with the call while they are small, and put into Ray's object
store once per version when they are not; a version is released with the next one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from functools import partial
from typing import Any, Final, NamedTuple

import numpy as np
import ray
from numpy.typing import NDArray

from border_cli.ray.calls import ActorReport, ReportKind, Transport
from border_cli.ray.remote import why

INLINE_NBYTES: Final = 64 * 1024  # of weights that travel with each call; Ray's own limit is 100 KB

# Ray replaces nothing, keeps no record of each call, and spreads the actors over its nodes.
OPTIONS: Final = {
    "max_restarts": 0,
    "max_task_retries": 0,
    "enable_task_events": False,
    "scheduling_strategy": "SPREAD",
}


class Running(NamedTuple):
    """The newest incarnation of an actor."""

    incarnation: int
    handle: Any


class RayTransport(Transport):
    """Owned by the broker's thread; only the queue is filled by others."""

    def __init__(
        self,
        *,
        actor: type[Any],
        arguments: Callable[[int, int], tuple[Any, ...]],
        name: Callable[[int, int], str],
        options: Mapping[str, Any],
        within_s: float,
        wake: Callable[[], None],
    ) -> None:
        """`actor` is made of its `arguments` (actor id, incarnation), with Ray's `options`."""
        self._actor: Any = ray.remote(actor)
        self._options = {**OPTIONS, **options}
        self._arguments = arguments
        self._name = name
        self._within_s = within_s
        self._wake = wake
        self._running: dict[int, Running] = {}
        self._weights: Any = None  # of the newest version, or a reference to them
        self.reports: deque[ActorReport] = deque()

    def publish(self, weights: NDArray[np.uint8]) -> None:
        """Calls from now on take these weights."""
        self._weights = weights

    def start(self, actor_id: int, incarnation: int) -> None:
        options = {**self._options, "name": self._name(actor_id, incarnation)}
        handle = self._actor.options(**options).remote(*self._arguments(actor_id, incarnation))
        self._running[actor_id] = Running(incarnation, handle)
        self._follow(handle.prepare.remote(), ReportKind.PLACED, actor_id, incarnation)
        self._follow(handle.build.remote(), ReportKind.BUILT, actor_id, incarnation)

    def call(self, actor_id: int, lease: int, samples: int, version: int | None) -> None:
        incarnation, handle = self._running[actor_id]
        weights = None
        if version is not None:
            # Put by the first call that takes them: many versions are replaced before.
            if isinstance(self._weights, np.ndarray) and self._weights.nbytes > INLINE_NBYTES:
                self._weights = ray.put(self._weights)
            weights = self._weights
        call = handle.act.remote(samples, self._within_s, version, weights)
        self._follow(call, ReportKind.RETURNED, actor_id, incarnation, lease)

    def close(self, actor_id: int) -> None:
        incarnation, handle = self._running[actor_id]
        self._follow(handle.close.remote(), ReportKind.CLOSED, actor_id, incarnation)

    def kill(self, actor_id: int) -> None:
        ray.kill(self._running.pop(actor_id).handle)

    def _follow(
        self, call: Any, kind: ReportKind, actor_id: int, incarnation: int, lease: int = 0
    ) -> None:
        done = partial(self._report, kind, actor_id, incarnation, lease)
        call.future().add_done_callback(done)

    def _report(
        self, kind: ReportKind, actor_id: int, incarnation: int, lease: int, future: Future[Any]
    ) -> None:
        """In a thread of Ray's."""
        try:
            report = ActorReport(kind, actor_id, incarnation, future.result(), lease)
        except Exception as error:
            report = ActorReport(ReportKind.DIED, actor_id, incarnation, why(error), lease)
        self.reports.append(report)
        self._wake()
