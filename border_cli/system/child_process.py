"""The parent's view of a child process."""

from __future__ import annotations

import logging
import select
import signal
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from multiprocessing.context import BaseContext
from typing import Any

from border_cli.errors import BadStep, ClusterRefused
from border_cli.system.child import (
    FAILED,
    LOG,
    READY,
    REFUSED,
    StackFile,
    begin,
    kill,
)
from border_cli.system.start import child_environment

log = logging.getLogger(__name__)

GONE_S = 1.0  # time within which a killed process ends
STARTS_S = 300.0  # allows for imports from a slow disk, but limits a hang in an import
MOST_AT_ONCE = 1_000  # messages per `listen`, so that a child cannot keep its parent busy
FAULTS = (signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGABRT)
UNKNOWN = 255  # exit status that multiprocessing reports if the fork server died


class ChildProcess:
    """A child process, its messages and its end. Owned by one thread.

    The child runs `main(*args, pipe)` (`child.begin`). Its log records are logged in this process.
    """

    def __init__(
        self,
        context: BaseContext,
        name: str,
        main: Callable[..., None],
        *args: Any,
        nice: int,
    ) -> None:
        self.name = name
        self._stack = StackFile()
        self.traceback: str | None = None  # traceback of a failed child
        self.refusal: BadStep | ClusterRefused | None = None  # error that ended the child
        self.killed = False  # whether `kill` was called
        self.inbox: deque[tuple[Any, ...]] = deque()  # messages of other kinds, sent by `main`
        self.connection, child_end = context.Pipe(duplex=True)
        log_level = logging.getLogger().getEffectiveLevel()
        process: Any = context.Process  # type: ignore[attr-defined]
        self._process = process(
            target=begin,
            args=(main, args, nice, log_level, child_end, self._stack),
            name=name,
            daemon=False,
        )
        try:
            with child_environment():
                self._process.start()
        except BaseException:
            self.connection.close()
            self._stack.close()
            raise
        finally:
            child_end.close()
        self.listening = True  # False once the child has closed its end
        self._arrived = select.poll()  # faster than `Connection.poll`
        self._arrived.register(self.connection.fileno(), select.POLLIN)
        self._ready = False
        self._started_s = time.monotonic()

    @property
    def pid(self) -> int:
        return int(self._process.pid)

    @property
    def waitables(self) -> list[int | Connection]:
        """Descriptors that become readable with the next message and, last, with the child's
        end."""
        messages: list[int | Connection] = [self.connection] if self.listening else []
        return [*messages, self._process.sentinel]

    @property
    def starting(self) -> bool:
        """True if the child may still be importing modules, so that no step is expected yet."""
        return not self._ready and time.monotonic() - self._started_s < STARTS_S

    @property
    def alive(self) -> bool:
        return bool(self._process.is_alive())

    def tell(self, *words: Any) -> None:
        """Sends a message to the child. Drops it if the child is gone."""
        with suppress(OSError):
            self.connection.send(words)

    def listen(self, timeout_s: float = 0.0) -> None:
        """Receives all messages sent so far; waits up to `timeout_s` for the first one. Returns
        early if the child ends."""
        try:
            for _ in range(MOST_AT_ONCE):
                if not self.listening or not self._arrived.poll(1000 * timeout_s):
                    return
                self._handle(self.connection.recv())
                timeout_s = 0.0
        except (EOFError, OSError):
            self.listening = False

    def _handle(self, message: tuple[Any, ...]) -> None:
        if message[0] == FAILED:
            self.traceback = message[1]
        elif message[0] == READY:
            self._ready = True
        elif message[0] == REFUSED:
            self.refusal = message[1]
        elif message[0] == LOG:
            _, name, level, text = message
            logging.getLogger(name).log(level, "%s: %s", self.name, text)
        else:
            self.inbox.append(message)

    def stack(self) -> str:
        """Returns the stacks of a child that is stuck."""
        return self._stack.request(self.pid)

    def kill(self) -> None:
        """Kills the child."""
        self.killed = True
        kill(self.pid)

    def reap(self) -> str | None:
        """Ensures that the child has ended. Returns the cause, or None for a normal end."""
        self.listen()
        if self.alive or self._process.exitcode == UNKNOWN:
            # If the fork server was killed, its children only look dead, and two processes must
            # never write to the same memory. In other cases the pid may have been reused.
            kill(self.pid)
        self._process.join(GONE_S)
        status = self._process.exitcode
        crash = self._stack.read() if status is not None and -status in FAULTS else ""
        self.connection.close()
        self._stack.close()
        if status is None:
            log.error("process %d is still running after being killed", self.pid)
        else:
            self._process.close()
        if self.refusal is not None:
            return str(self.refusal)
        if self.traceback is not None:
            return self.traceback
        return None if status in (0, None) else f"{crash}{_cause(status)}"


def _cause(status: int) -> str:
    if status < 0:
        named = {number.value: number.name for number in signal.Signals}
        name = named.get(-status, f"signal {-status}")  # real-time signals have no names
        hint = " (out of memory?)" if name == "SIGKILL" else ""
        return f"its process was killed by {name}{hint}"
    return (
        f"its process exited with status {status} without an error message (check its output; a "
        'script that trains needs `if __name__ == "__main__":`)'
    )
