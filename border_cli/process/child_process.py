"""A child process as its parent sees it."""

from __future__ import annotations

import logging
import os
import select
import signal
from collections import deque
from collections.abc import Callable
from multiprocessing.connection import Connection
from multiprocessing.context import BaseContext
from typing import Any

from border_cli.core.errors import BadStep
from border_cli.process.child import FAILED, LOG, REFUSED, Manners, begin
from border_cli.process.stack import StackFile, kill
from border_cli.process.start import child_environment

GONE_S = 1.0  # a killed process needs no longer to end
MOST_AT_ONCE = 1_000  # messages; more than can be under way, so that no talker keeps its parent
UNKNOWN = 255  # what multiprocessing gives as status where the fork server died


class ChildProcess:
    """Its process, what it says, and how it ended; one thread owns it.

    Runs `main(*args, line)` of `process.child`. What it logs is logged here, too.
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
        self.refusal: BadStep | None = None  # for which it ended
        self.inbox: deque[tuple[Any, ...]] = deque()  # what it said of its own affairs
        self.connection, theirs = context.Pipe(duplex=True)
        manners = Manners(nice=nice, log_level=logging.getLogger().getEffectiveLevel())
        process: Any = context.Process  # type: ignore[attr-defined]
        self._process = process(
            target=begin, args=(main, args, manners, theirs, self._stack), name=name, daemon=False
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

    @property
    def pid(self) -> int:
        return int(self._process.pid)

    @property
    def news(self) -> list[int | Connection]:
        """What to wait for: its messages and its end."""
        talks: list[int | Connection] = [self.connection] if self._listening else []
        return [*talks, self._process.sentinel]

    @property
    def alive(self) -> bool:
        return bool(self._process.is_alive())

    def listen(self) -> None:
        """Takes in what it said so far."""
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
        kill(self.pid)

    def bury(self) -> str | None:
        """Makes sure that it is gone; returns why it ended, None where it was meant to."""
        self.listen()
        pid = self.pid
        self._process.join(0)
        status = self._process.exitcode
        if status in (None, UNKNOWN):
            # Where the fork server was killed, its children only look dead, and two processes must
            # never write to the same memory. Otherwise the number may be somebody else's by now.
            kill(pid)
            _wait_until_gone(pid)
        self.connection.close()
        self._stack.close()
        self._process.join(GONE_S)
        self._process.close()
        if self.refusal is not None:
            return str(self.refusal)
        if self.traceback is not None:
            return self.traceback
        return None if status == 0 else _cause(status)


def _cause(status: int | None) -> str:
    if status is not None and status < 0:
        name = signal.Signals(-status).name
        hint = " (out of memory?)" if name == "SIGKILL" else ""
        return f"its process was ended by {name}{hint}"
    return (
        f"its process ended with status {status} before it could say why (a script that trains "
        'needs `if __name__ == "__main__":`; what the process printed may tell more)'
    )


def _wait_until_gone(pid: int) -> None:
    try:
        descriptor = os.pidfd_open(pid)
    except (AttributeError, OSError):  # gone, or a system without pidfds
        return
    try:
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        if not poll.poll(GONE_S * 1000):
            logging.getLogger(__name__).error("process %d does not end although killed", pid)
    finally:
        os.close(descriptor)
