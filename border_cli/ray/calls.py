"""The interface for calling actors on a cluster, and their reports, independent of Ray."""

from __future__ import annotations

from collections import deque
from enum import Enum, auto
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray


class ReportKind(Enum):
    """The kinds of reports about an actor."""

    PLACED = auto()  # the process has started and imported its modules; `value`: its location
    BUILT = auto()  # the environments are built; `value`: the result of `build`
    RETURNED = auto()  # a call has returned; `value`: its result
    CLOSED = auto()  # the environments are closed
    DIED = auto()  # the process has died, or a call has raised; `value`: the reason


class ActorReport(NamedTuple):
    """A report about one incarnation of an actor."""

    kind: ReportKind
    actor_id: int
    incarnation: int  # counted from the start of this attempt
    value: Any = None
    lease: int = 0  # number of the lease, for `RETURNED`


class Transport(Protocol):
    """An interface to start, call and kill actors, and to send them weights. No method blocks;
    results are reported later, in a queue.

    Each call is reported at most once. Reports about a replaced incarnation are ignored.
    """

    reports: deque[ActorReport]

    def publish(self, weights: NDArray[np.uint8]) -> None:
        """Sets the weights for all later calls that have a version."""

    def start(self, actor_id: int, incarnation: int) -> None:
        """Starts an actor as soon as a node has room for it, and builds its environments."""

    def call(self, actor_id: int, lease: int, samples: int, version: int | None) -> None:
        """Makes an actor collect samples; if `version` is None, it keeps its current weights."""

    def close(self, actor_id: int) -> None:
        """Makes an actor close its environments."""

    def kill(self, actor_id: int) -> None:
        """Kills the process of an actor."""
