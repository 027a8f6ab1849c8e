"""Actors on a Ray cluster, called without ever waiting: what returns is reported to a queue.

Ray tells of each call that is over in a thread of its own, which puts a report into the queue and
wakes the broker. Weights are sent with the call while they are small, and put into Ray's object
store once per version when they are not; a version is released with the next one.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from functools import partial
from typing import Any, Final

import numpy as np
import ray
from numpy.typing import NDArray
from ray.exceptions import RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from border_cli.cluster.calls import Kind, Report, WeightTransport
from border_cli.cluster.host import Host

INLINE_NBYTES: Final = 64 * 1024  # of weights that travel with each call; Ray's own limit is 100 KB


class RayTransport(WeightTransport):
    """Owned by the broker's thread; only the queue is filled by others."""

    def __init__(
        self,
        *,
        target: str,
        arguments: Callable[[int, int], tuple[Any, ...]],
        name: Callable[[int, int], str],
        options: Mapping[str, Any],
        within_s: float,
        wake: Callable[[], None],
    ) -> None:
        """`target` is the class of an actor, made of its `arguments` (actor id, incarnation)."""
        self._target = target
        self._arguments = arguments
        self._name = name
        self._within_s = within_s
        self._wake = wake
        self._host = ray.remote(Host)
        self._options = {"max_restarts": 0, "max_task_retries": 0, **options}
        self._handles: dict[int, tuple[int, Any]] = {}  # incarnation and handle of each actor
        self._weights: Any = None  # of the newest version, or a reference to them
        self._weights_put = True
        self.reports: deque[Report] = deque()

    def publish(self, weights: NDArray[np.uint8]) -> None:
        """Calls from now on take these weights."""
        self._weights, self._weights_put = weights, weights.nbytes <= INLINE_NBYTES

    def _newest_weights(self) -> Any:
        if not self._weights_put:  # by the first call that needs them
            self._weights, self._weights_put = ray.put(self._weights), True
        return self._weights

    def start(self, actor_id: int, incarnation: int, *, avoid: str | None) -> None:
        options = {**self._options, "name": self._name(actor_id, incarnation)}
        if avoid is not None and (node := other_node(avoid)) is not None:
            options["scheduling_strategy"] = NodeAffinitySchedulingStrategy(node, soft=True)
        host = self._host.options(**options)
        handle = host.remote(self._target, *self._arguments(actor_id, incarnation))
        self._handles[actor_id] = incarnation, handle
        self._follow(handle.place.remote(), Kind.PLACED, actor_id, incarnation)
        self._follow(handle.call.remote("build"), Kind.BUILT, actor_id, incarnation)

    def call(self, actor_id: int, lease: int, samples: int, version: int | None) -> None:
        incarnation, handle = self._handles[actor_id]
        weights = None if version is None else self._newest_weights()
        call = handle.call.remote("act", samples, self._within_s, version, weights)
        self._follow(call, Kind.RETURNED, actor_id, incarnation, lease)

    def close(self, actor_id: int) -> None:
        incarnation, handle = self._handles[actor_id]
        self._follow(handle.call.remote("close"), Kind.CLOSED, actor_id, incarnation)

    def kill(self, actor_id: int) -> None:
        _, handle = self._handles.pop(actor_id)
        ray.kill(handle)

    def places(self) -> int:
        reserved = {"CPU": self._options.get("num_cpus", 0) or 1}
        reserved |= self._options.get("resources") or {}
        if memory := self._options.get("memory"):
            reserved["memory"] = memory
        nodes = [each["Resources"] for each in ray.nodes() if each["Alive"]]
        return sum(
            int(min(node.get(name, 0) / amount for name, amount in reserved.items() if amount))
            for node in nodes
        )

    def _follow(
        self, call: Any, kind: Kind, actor_id: int, incarnation: int, lease: int = 0
    ) -> None:
        done = partial(self._report, kind, actor_id, incarnation, lease)
        call.future().add_done_callback(done)

    def _report(
        self, kind: Kind, actor_id: int, incarnation: int, lease: int, future: Future[Any]
    ) -> None:
        """In a thread of Ray's."""
        try:
            report = Report(kind, actor_id, incarnation, future.result(), lease)
        except Exception as error:
            report = Report(Kind.DIED, actor_id, incarnation, _why(error), lease)
        self.reports.append(report)
        self._wake()


def other_node(avoid: str) -> str | None:
    """Any node that is alive but this one; None where there is no other."""
    others = [each["NodeID"] for each in ray.nodes() if each["Alive"] and each["NodeID"] != avoid]
    return random.choice(others) if others else None


def _why(error: Exception) -> str:
    """Why a call failed."""
    if isinstance(error, RayError):
        return f"its process is gone: {str(error).strip()}"
    return f"{type(error).__name__}: {error}"
