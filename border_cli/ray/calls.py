"""Calls of actors on a cluster: how they are made, and what is reported of them. Free of Ray."""

from __future__ import annotations

from collections import deque
from enum import Enum, auto
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray


class ReportKind(Enum):
    """The kinds of reports of an actor."""

    PLACED = auto()  # its process runs and has imported what it needs; `value`: where
    BUILT = auto()  # its environments are built; `value`: what `build` returned
    RETURNED = auto()  # a call has returned; `value`: what it returned
    CLOSED = auto()  # its environments are closed
    DIED = auto()  # its process; `value`: why


class ActorReport(NamedTuple):
    """A report of one incarnation of an actor."""

    kind: ReportKind
    actor_id: int
    incarnation: int  # in this attempt
    value: Any = None
    lease: int = 0  # of `RETURNED`


class Transport(Protocol):
    """Starts, calls and kills actors, and sends them weights; nothing waits. What comes of it is
    reported later, in a queue.

    A call that is reported never is reported twice. What is reported of an incarnation that was
    replaced is ignored.
    """

    reports: deque[ActorReport]

    def publish(self, weights: NDArray[np.uint8]) -> None:
        """Calls with a version take these weights from now on."""

    def start(self, actor_id: int, incarnation: int) -> None:
        """Starts an actor where there is room, as soon as there is, and builds its environments."""

    def call(self, actor_id: int, lease: int, samples: int, version: int | None) -> None:
        """Has it make up to so many samples, with weights of this version; None: those it has."""

    def close(self, actor_id: int) -> None:
        """Has it close its environments."""

    def kill(self, actor_id: int) -> None:
        """Ends its process."""
