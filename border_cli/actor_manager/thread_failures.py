"""What went wrong in the threads of actors, on its way to the learner."""

from __future__ import annotations

import logging
import sys
import threading
import traceback
from collections.abc import Sequence

from border_cli.core.errors import ActorHung, RunFailed

log = logging.getLogger(__name__)


class ThreadFailures:
    """Keeps the first crash and the first thread that hangs; `report` is for all threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._crash: RunFailed | None = None
        self.hung: ActorHung | None = None

    def report(self, error: BaseException) -> None:
        """A thread ended by this."""
        with self._lock:
            self._crash = self._crash or _as_failure(error)

    def name_hung(self, threads: Sequence[threading.Thread], timeout_s: float) -> None:
        """Logs the stack of every thread (by actor id) that is alive past its deadline, once."""
        if self.hung:
            return
        frames = sys._current_frames()
        for actor_id, thread in enumerate(threads):
            if thread.is_alive() and thread.ident is not None:
                frame = frames.get(thread.ident)
                stack = "".join(traceback.format_stack(frame)) if frame else "(it has just ended)"
                hung = ActorHung(actor_id, timeout_s, stack)
                log.error("%s", hung)
                self.hung = self.hung or hung

    def raise_crash(self) -> None:
        if self._crash:
            raise self._crash

    def raise_any(self) -> None:
        self.raise_crash()
        if self.hung:
            raise self.hung


def _as_failure(error: BaseException) -> RunFailed:
    if isinstance(error, RunFailed):
        return error
    failure = RunFailed(f"an actor thread failed: {error!r}")
    failure.__cause__ = error
    return failure
