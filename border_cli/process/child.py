"""What every child process of ours does first."""

from __future__ import annotations

import faulthandler
import logging
import multiprocessing
import os
import signal
import threading
from multiprocessing.connection import Connection, wait
from typing import Any

STACK_SIGNAL = signal.SIGUSR1  # makes a child show where it is
_LOOK_AGAIN_S = 60.0


def prepare(*, nice: int, stack_fd: int) -> None:
    """The parent decides when a child ends: it hears no Ctrl-C, and it never outlives the parent.

    `stack_fd` is where it writes its stack when it is sent `STACK_SIGNAL`.
    """
    for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(signum, signal.SIG_IGN)
    # The interpreter need not be free for this: a step that never returns is shown, too.
    faulthandler.register(STACK_SIGNAL, file=stack_fd, all_threads=True)
    if nice:
        os.nice(nice)
    threading.Thread(target=_end_with_parent, name="parent's end", daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    while not wait([parent.sentinel], _LOOK_AGAIN_S):
        pass
    os._exit(1)


class LogSender(logging.Handler):
    """Sends what is logged in a child to the parent, as plain values."""

    def __init__(self, connection: Connection) -> None:
        super().__init__()
        self._connection = connection

    def emit(self, record: logging.LogRecord) -> None:
        try:
            text = self.format(record)
            self._connection.send((record.name, record.levelno, text))
        except (OSError, ValueError):
            return  # the parent is on its way out; so are we


def send_log(connection: Connection, level: int) -> None:
    """From now on everything that this process logs goes to the parent."""
    root = logging.getLogger()
    root.handlers[:] = [LogSender(connection)]
    root.setLevel(level)


def relog(message: tuple[str, int, str], child: str) -> None:
    """Logs in the parent what a child sent."""
    name, level, text = message
    logging.getLogger(name).log(level, "%s: %s", child, text)


Message = tuple[Any, ...]
