"""A way to wake a process that waits."""

from __future__ import annotations

import os
import select
from multiprocessing import reduction
from typing import Any


class Bell:
    """One process waits, others ring; rings that nobody heard yet are heard once.

    A pipe: it works between any two processes, needs no name, and is not spoilt by a process that
    is killed while it uses it. Picklable on the way into a child process only.
    """

    _hear = _ring = -1

    def __init__(self) -> None:
        self._hear, self._ring = os.pipe()
        self._prepare()

    def _prepare(self) -> None:
        os.set_blocking(self._hear, False)
        os.set_blocking(self._ring, False)
        self._poll = select.poll()
        self._poll.register(self._hear, select.POLLIN)

    def ring(self) -> None:
        """Wakes whoever waits, or the next one that does; nobody once it is closed."""
        if self._ring < 0:
            return
        try:
            os.write(self._ring, b"!")
        except BlockingIOError:
            return  # so many rings are unheard that one more changes nothing

    def wait(self, timeout_s: float) -> None:
        """Returns once it rang since the last wait, or after `timeout_s`."""
        if self._poll.poll(max(0.0, timeout_s) * 1000):
            self.hush()

    def hush(self) -> None:
        """Forgets the rings so far."""
        try:
            os.read(self._hear, 65536)
        except BlockingIOError:
            return

    def fileno(self) -> int:
        """Readable while a ring is unheard: for waits that listen to several things."""
        return self._hear

    def close(self) -> None:
        """Closes both ends; may be called twice."""
        ends, self._hear, self._ring = (self._hear, self._ring), -1, -1
        for fd in ends:
            if fd >= 0:
                os.close(fd)

    __del__ = close  # of one that nobody came to use

    def __getstate__(self) -> dict[str, Any]:
        return {"hear": reduction.DupFd(self._hear), "ring": reduction.DupFd(self._ring)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._hear, self._ring = state["hear"].detach(), state["ring"].detach()
        self._prepare()
