"""A thread that writes beside the learner."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

log = logging.getLogger(__name__)

Work = Callable[[], None]


class WritingThread:
    """Does one piece of work after another, at most one waiting per slot; never raises.

    The thread starts with the first piece and is a daemon: a disk that hangs does not keep the
    process. Each method may be called by the thread that hands work over.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._changed = threading.Condition()
        self._waiting: dict[str, Work] = {}  # by slot, in the order in which they were handed over
        self._doing: str | None = None  # the slot of what is under way
        self._thread: threading.Thread | None = None
        self._closed = False

    def put(self, slot: str, work: Work) -> bool:
        """Hands work over, in place of what waits in its slot; False after `close`."""
        with self._changed:
            if self._closed:
                return False
            self._waiting[slot] = work
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                self._thread.start()
            self._changed.notify_all()
        return True

    def occupied(self, slot: str) -> bool:
        """Whether work of the slot waits or is under way."""
        with self._changed:
            return slot in self._waiting or self._doing == slot

    def wait(self, timeout_s: float | None) -> bool:
        """Until nothing is left to do; False: not in time."""
        with self._changed:
            return self._changed.wait_for(self._is_idle, timeout_s)

    def close(self, timeout_s: float) -> bool:
        """Finishes what was handed over and ends the thread; False: not in time."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join(timeout_s)
            return not self._thread.is_alive()
        return True

    def _is_idle(self) -> bool:
        return not self._waiting and self._doing is None

    def _run(self) -> None:
        while self._do_next():
            pass  # between two pieces nothing holds on to what the last one wrote

    def _do_next(self) -> bool:
        work = self._next()
        if work is None:
            return False
        try:
            work()
        except BaseException:  # its owner has its own way to tell; nobody would see this one
            log.exception("%s failed", self._name)
        return True

    def _next(self) -> Work | None:
        with self._changed:
            self._doing = None
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._waiting or self._closed)
            if not self._waiting:
                return None
            self._doing = next(iter(self._waiting))
            return self._waiting.pop(self._doing)
