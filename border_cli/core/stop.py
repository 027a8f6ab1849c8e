"""How a run is asked to stop or to save, and the heartbeats that a watchdog reads."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol


class StopFlag:
    """Set by a signal handler or the watchdog, checked by the learner between two steps.

    The first reason stays; later ones are ignored. Setting an attribute is atomic in Python, so
    `request` is safe in a signal handler and in any thread.
    """

    def __init__(self) -> None:
        self.reason: Exception | None = None  # None while the run may go on
        self.noticed = False  # the learner has raised the reason
        self.listen: Callable[[], object] = lambda: None  # called by `check`

    def request(self, reason: Exception) -> None:
        """Asks the run to end by raising `reason` in the learner's thread."""
        if self.reason is None:
            self.reason = reason

    @property
    def requested(self) -> bool:
        return self.reason is not None

    def check(self) -> None:
        """Raises the reason, if there is one."""
        self.listen()
        if self.reason is not None:
            self.noticed = True
            raise self.reason


class SaveFlag:
    """Set by a signal handler, checked by the learner between two steps: save now and continue."""

    def __init__(self) -> None:
        self.requested = False

    def request(self) -> None:
        """Asks for a checkpoint; atomic, hence safe in a signal handler and in any thread."""
        self.requested = True

    def clear(self) -> None:
        """The checkpoint is being written."""
        self.requested = False


class Pulse(Protocol):
    """Signs of life of one part of a run, as the watchdog reads them."""

    @property
    def name(self) -> str: ...

    @property
    def beats(self) -> int:
        """Steps so far."""

    @property
    def waiting_for(self) -> str | None:
        """The part or event it waits for; while it waits it does not count as hung."""

    @property
    def thread_id(self) -> int | None:
        """Whose stack to show; None for a part in another process."""

    def restart(self) -> bool:
        """Replaces a part that hangs; False where that is impossible, and the run must end."""


class Heartbeat:
    """Signs of life of one part: written by the thread that runs it, read by the watchdog."""

    def __init__(self, name: str, waiting_for: str | None = None) -> None:
        self.name = name
        self.beats = 0
        self.waiting_for = waiting_for
        self.thread_id: int | None = None  # whose stack to show
        self.on_beat: Callable[[], None] | None = None  # called by the same thread

    def claim(self) -> None:
        """The calling thread is the one that runs this part."""
        self.thread_id = threading.get_ident()

    def beat(self) -> None:
        """One step was made."""
        self.beats += 1
        if self.on_beat is not None:
            self.on_beat()

    def restart(self) -> bool:
        """A thread cannot be replaced while it hangs."""
        return False

    @contextmanager
    def waiting(self, what: str) -> Iterator[None]:
        """Within the block the part waits for another and does not count as hung."""
        self.waiting_for = what
        try:
            yield
        finally:
            self.beats += 1  # first: a part that is seen working must be seen to have moved
            self.waiting_for = None

    @contextmanager
    def working(self) -> Iterator[None]:
        """Outside the block the part waits for its turn; for parts that work only at times."""
        self.claim()
        self.beats += 1
        self.waiting_for = None
        try:
            yield
        finally:
            self.waiting_for = "its turn"
