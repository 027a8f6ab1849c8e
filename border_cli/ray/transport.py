"""A non-blocking transport to actors on a Ray cluster, which reports results to a queue.

When a call is finished, Ray invokes a callback in one of its threads, which adds a report to the
queue and wakes the broker. Small weights are sent with each call that needs them. Large weights are
put into Ray's object store by the first such call, and released when newer ones replace them.
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
from border_cli.ray.remote import describe_error

INLINE_NBYTES: Final = 64 * 1024  # largest weights sent with a call; Ray's own limit is 100 KB

# Ray neither restarts actors nor records task events, and spreads the actors over the nodes.
OPTIONS: Final = {
    "max_restarts": 0,
    "max_task_retries": 0,
    "enable_task_events": False,
    "scheduling_strategy": "SPREAD",
}


class Running(NamedTuple):
    """The newest incarnation of an actor, and its Ray handle."""

    incarnation: int
    handle: Any


class RayTransport(Transport):
    """A transport owned by the broker's thread; Ray's threads only append to `reports`."""

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
        """`arguments` maps an actor id and an incarnation to the arguments of the class `actor`;
        `options` are options of Ray."""
        self._actor: Any = ray.remote(actor)
        self._options = {**OPTIONS, **options}
        self._arguments = arguments
        self._name = name
        self._within_s = within_s
        self._wake = wake
        self._running: dict[int, Running] = {}
        self._weights: Any = None  # the newest weights, or Ray's reference to them
        self.reports: deque[ActorReport] = deque()

    def publish(self, weights: NDArray[np.uint8]) -> None:
        """Sets the weights for all later calls that have a version."""
        self._weights = weights

    def start(self, actor_id: int, incarnation: int) -> None:
        options = {**self._options, "name": self._name(actor_id, incarnation)}
        handle = self._actor.options(**options).remote(*self._arguments(actor_id, incarnation))
        self._running[actor_id] = Running(incarnation, handle)
        self._report_when_done(handle.prepare.remote(), ReportKind.PLACED, actor_id, incarnation)
        self._report_when_done(handle.build.remote(), ReportKind.BUILT, actor_id, incarnation)

    def call(self, actor_id: int, lease: int, samples: int, version: int | None) -> None:
        incarnation, handle = self._running[actor_id]
        weights = None
        if version is not None:
            # Put into the store by the first call that needs them: many versions are never used.
            if isinstance(self._weights, np.ndarray) and self._weights.nbytes > INLINE_NBYTES:
                self._weights = ray.put(self._weights)
            weights = self._weights
        call = handle.act.remote(samples, self._within_s, version, weights)
        self._report_when_done(call, ReportKind.RETURNED, actor_id, incarnation, lease)

    def close(self, actor_id: int) -> None:
        incarnation, handle = self._running[actor_id]
        self._report_when_done(handle.close.remote(), ReportKind.CLOSED, actor_id, incarnation)

    def kill(self, actor_id: int) -> None:
        ray.kill(self._running.pop(actor_id).handle)

    def _report_when_done(
        self, call: Any, kind: ReportKind, actor_id: int, incarnation: int, lease: int = 0
    ) -> None:
        done = partial(self._report, kind, actor_id, incarnation, lease)
        call.future().add_done_callback(done)

    def _report(
        self, kind: ReportKind, actor_id: int, incarnation: int, lease: int, future: Future[Any]
    ) -> None:
        """Appends a report about a finished call; runs in a thread of Ray."""
        try:
            report = ActorReport(kind, actor_id, incarnation, future.result(), lease)
        except Exception as error:
            report = ActorReport(
                ReportKind.DIED, actor_id, incarnation, describe_error(error), lease
            )
        self.reports.append(report)
        self._wake()
