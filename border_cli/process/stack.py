"""Where a child writes its stack when it is asked to, for a parent that finds it stuck."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from multiprocessing import reduction
from typing import Any

from border_cli.core.stacks import ASK_S, ask_for_stacks
from border_cli.process.memory import anonymous_file

STACK_SIGNAL = signal.SIGUSR1  # makes a child show where it is


class StackFile:
    """An anonymous file that survives the child. Picklable on the way into a child only."""

    _fd = -1

    def __init__(self) -> None:
        self._fd = anonymous_file()

    def fileno(self) -> int:
        return self._fd

    def ask(self, pid: int, timeout_s: float = ASK_S) -> str:
        """The stacks of that process, which must be a child that was given this file."""
        text = ask_for_stacks(pid, STACK_SIGNAL, self._fd, timeout_s)
        return text or "(the process did not report its stack)"

    def crash(self) -> str:
        """Where a child was that a fault of its own has ended; empty where nothing tells."""
        return os.pread(self._fd, os.fstat(self._fd).st_size, 0).decode(errors="replace")

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
