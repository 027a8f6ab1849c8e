"""Where a child writes its stack when it is asked to, for a parent that finds it stuck."""

from __future__ import annotations

import os
import select
import signal
from contextlib import suppress
from multiprocessing import reduction
from typing import Any

from border_cli.process.memory import anonymous_file

STACK_SIGNAL = signal.SIGUSR1  # makes a child show where it is


class StackFile:
    """An anonymous file that survives the child. Picklable on the way into a child only."""

    _fd = -1

    def __init__(self) -> None:
        self._fd = anonymous_file()

    def fileno(self) -> int:
        return self._fd

    def ask(self, pid: int, timeout_s: float = 0.5) -> str:
        """The stacks of that process, which must be a child that was given this file."""
        with suppress(ProcessLookupError):
            os.kill(pid, STACK_SIGNAL)
        size, nothing = -1, select.poll()
        for _ in range(10):  # until it has stopped to grow
            nothing.poll(timeout_s * 1000 / 10)
            grown = os.fstat(self._fd).st_size
            if grown == size > 0:
                break
            size = grown
        text = os.pread(self._fd, max(0, size), 0).decode(errors="replace")
        return text or "(it does not even show its stack)"

    def close(self) -> None:
        """Gives the file up; may be called twice."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    __del__ = close

    def __getstate__(self) -> dict[str, Any]:
        return {"fd": reduction.DupFd(self._fd)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._fd = state["fd"].detach()


def kill(pid: int) -> None:
    """Ends a child for good. It may be dead already; then nothing happens."""
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
