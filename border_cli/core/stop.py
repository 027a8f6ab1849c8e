"""Stop and save requests, and heartbeats for the watchdog."""

from __future__ import annotations

import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol


class StopFlag:
    """A stop request, set by a signal handler or the watchdog, checked by the learner in each step.

    The first reason wins; later ones are ignored. Setting an attribute is atomic in Python, so
    `request` is safe in a signal handler and in any thread.
    """

    def __init__(self) -> None:
        self.reason: Exception | None = None  # None while the run may continue
        self.noticed = False  # whether the learner has raised the reason
        self.listen: Callable[[], object] = lambda: None  # called by `check`

    def request(self, reason: Exception) -> None:
        """Requests the end of the run; the learner's thread will raise `reason`."""
        if self.reason is None:
            self.reason = reason

    @property
    def requested(self) -> bool:
        return self.reason is not None

    def check(self) -> None:
        """Raises the reason if a stop is requested."""
        self.listen()
        if self.reason is not None:
            self.noticed = True
            raise self.reason


class SaveFlag:
    """A request for a checkpoint, set by a signal handler, checked by the learner in each step."""

    def __init__(self) -> None:
        self.requested = False

    def request(self) -> None:
        """Requests a checkpoint; atomic, hence safe in a signal handler and in any thread."""
        self.requested = True

    def clear(self) -> None:
        """Resets the request, once the checkpoint is being written."""
        self.requested = False


def stack_of(thread: threading.Thread) -> str:
    """Returns the stack of a thread of this process."""
    frame = sys._current_frames().get(thread.ident or 0)
    return "".join(traceback.format_stack(frame)) if frame else "(it has just ended)"


class MonitoredPart(Protocol):
    """The heartbeat of one part of a run, as the watchdog reads it."""

    @property
    def name(self) -> str: ...

    @property
    def beats(self) -> int:
        """Number of steps so far."""

    @property
    def waiting_for(self) -> str | None:
        """The part or event that it waits for, if any; a waiting part does not count as hung."""

    @property
    def thread_id(self) -> int | None:
        """The thread whose stack to show; None for a part in another process."""

    def restart(self) -> bool:
        """Replaces a hung part; returns False if that is impossible and the run must end."""


class Heartbeat:
    """The heartbeat of one part, written by the thread that runs it, read by the watchdog."""

    def __init__(self, name: str, waiting_for: str | None = None) -> None:
        self.name = name
        self.beats = 0
        self.waiting_for = waiting_for
        self.thread_id: int | None = None  # thread whose stack to show
        self.on_beat: Callable[[], None] | None = None  # called by `beat`

    def claim(self) -> None:
        """Registers the calling thread as the one that runs this part."""
        self.thread_id = threading.get_ident()

    def beat(self) -> None:
        """Counts one step."""
        self.beats += 1
        if self.on_beat is not None:
            self.on_beat()

    def restart(self) -> bool:
        """Returns False: a hung thread cannot be replaced."""
        return False

    @contextmanager
    def waiting(self, what: str) -> Iterator[None]:
        """Marks the part as waiting within the block, so that it does not count as hung."""
        self.waiting_for = what
        try:
            yield
        finally:
            self.beats += 1  # before the wait ends, so that the watchdog sees progress
            self.waiting_for = None

    @contextmanager
    def working(self) -> Iterator[None]:
        """Marks the part as active within the block only; for parts that work occasionally."""
        self.claim()
        self.beats += 1
        self.waiting_for = None
        try:
            yield
        finally:
            self.waiting_for = "its turn"
