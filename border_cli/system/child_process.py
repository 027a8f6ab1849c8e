"""A child process as its parent sees it."""

from __future__ import annotations

import logging
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

GONE_S = 1.0  # a killed process needs no longer to end
STARTS_S = 300.0  # imports from a slow disk take their time; a hang among them ends with this
MOST_AT_ONCE = 1_000  # messages; more than can be in flight, so that no child keeps its parent busy
FAULTS = (signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGABRT)
UNKNOWN = 255  # what multiprocessing gives as status where the fork server died


class ChildProcess:
    """Its process, its messages, and how it ended; one thread owns it.

    The child runs `main(*args, pipe)` (`child.begin`). What it logs is logged here, too.
    """

    def __init__(
        self,
        context: BaseContext,
        name: str,
        main: Callable[..., None],
        *args: Any,
        nice: int,
    ) -> None:
        self._name = name
        self._stack = StackFile()
        self.traceback: str | None = None  # of its failure
        self.refusal: BadStep | ClusterRefused | None = None  # for which it ended
        self.killed = False  # by `kill`
        self.inbox: deque[tuple[Any, ...]] = deque()  # its main's own messages
        self.connection, theirs = context.Pipe(duplex=True)
        log_level = logging.getLogger().getEffectiveLevel()
        process: Any = context.Process  # type: ignore[attr-defined]
        self._process = process(
            target=begin,
            args=(main, args, nice, log_level, theirs, self._stack),
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
            theirs.close()
        self._listening = True
        self._ready = False
        self._started_s = time.monotonic()

    @property
    def pid(self) -> int:
        return int(self._process.pid)

    @property
    def waitables(self) -> list[int | Connection]:
        """Descriptors that become readable with its next message and, last, with its end."""
        messages: list[int | Connection] = [self.connection] if self._listening else []
        return [*messages, self._process.sentinel]

    @property
    def starting(self) -> bool:
        """Whether it may still be importing what it needs, so that no step is expected of it."""
        return not self._ready and time.monotonic() - self._started_s < STARTS_S

    @property
    def alive(self) -> bool:
        return bool(self._process.is_alive())

    def tell(self, *words: Any) -> None:
        """Sends it a message, which is dropped where it is gone."""
        with suppress(OSError):
            self.connection.send(words)

    def listen(self) -> None:
        """Takes in its messages so far."""
        try:
            for _ in range(MOST_AT_ONCE):
                if not self._listening or not self.connection.poll():
                    return
                self._take(self.connection.recv())
        except (EOFError, OSError):
            self._listening = False

    def _take(self, message: tuple[Any, ...]) -> None:
        if message[0] == FAILED:
            self.traceback = message[1]
        elif message[0] == READY:
            self._ready = True
        elif message[0] == REFUSED:
            self.refusal = message[1]
        elif message[0] == LOG:
            _, name, level, text = message
            logging.getLogger(name).log(level, "%s: %s", self._name, text)
        else:
            self.inbox.append(message)

    def stack(self) -> str:
        """Where it is now; for one that is stuck."""
        return self._stack.ask(self.pid)

    def kill(self) -> None:
        """Ends it whatever it does."""
        self.killed = True
        kill(self.pid)

    def reap(self) -> str | None:
        """Makes sure that it is gone; returns why it ended, None where it was meant to."""
        self.listen()
        if self.alive or self._process.exitcode == UNKNOWN:
            # Where the fork server was killed, its children only look dead, and two processes must
            # never write to the same memory. Otherwise its pid may be another's by now.
            kill(self.pid)
        self._process.join(GONE_S)
        status = self._process.exitcode
        crash = self._stack.written() if status is not None and -status in FAULTS else ""
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
        name = signal.Signals(-status).name
        hint = " (out of memory?)" if name == "SIGKILL" else ""
        return f"its process was killed by {name}{hint}"
    return (
        f"its process exited with status {status} without an error message (check its output; a "
        'script that trains needs `if __name__ == "__main__":`)'
    )
