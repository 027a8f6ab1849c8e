"""What runs in every child process of ours, around what it is for."""

from __future__ import annotations

import faulthandler
import fcntl
import logging
import multiprocessing
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any, Final

from border_cli.core.errors import BadStep
from border_cli.core.process_state import keeping_everything
from border_cli.core.stacks import show_stacks_on
from border_cli.process.stack import STACK_SIGNAL, StackFile
from border_cli.process.start import OURS, PARENT_SIGNALS, SAFE_PATH

# The first word of a message; whatever else a child says is its own affair.
LOG: Final = "log"  # logger, level, text
FAILED: Final = "failed"  # traceback
BEGUN: Final = "has begun"  # what it needs is imported
REFUSED: Final = "refused"  # `BadStep`, which needs no traceback

_LOOK_AGAIN_S = 60.0


class Line:
    """A child's way to talk with its parent; any thread of the child may speak."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._speaking = threading.Lock()

    def say(self, kind: str, *values: Any) -> None:
        """Sends a message; nobody hears it where the parent is on its way out."""
        try:
            with self._speaking:
                self._connection.send((kind, *values))
        except OSError:
            return

    def hear(self) -> Any:
        """The parent's next word; raises EOFError once it has hung up."""
        return self._connection.recv()


@dataclass(frozen=True, slots=True, kw_only=True)
class Manners:
    """How a child behaves beside its parent."""

    nice: int  # added to the parent's
    log_level: int  # what is logged from this level on goes to the parent's log


def begin(
    main: Callable[..., None],
    args: tuple[Any, ...],
    manners: Manners,
    connection: Connection,
    stack: StackFile,
) -> None:
    """Runs `main(*args, line)` and leaves; a failure is told to the parent with its traceback."""
    line = Line(connection)
    status = 0
    try:
        _prepare(manners, stack, line)
        with keeping_everything():
            main(*args, line)
    except BadStep as error:
        line.say(REFUSED, error)
        status = 1
    except BaseException:
        line.say(FAILED, traceback.format_exc())
        status = 1
    connection.close()
    with suppress(OSError, ValueError):  # nobody reads them any more
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(status)  # an environment's own threads and exit handlers must not hold us up


def _prepare(manners: Manners, stack: StackFile, line: Line) -> None:
    """The parent decides when a child ends: it hears no Ctrl-C, and never outlives the parent."""
    for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(signum, signal.SIG_IGN)
    show_stacks_on(STACK_SIGNAL, stack.fileno())
    faulthandler.enable(file=stack.fileno())  # a segmentation fault shows where it was
    signal.pthread_sigmask(signal.SIG_UNBLOCK, PARENT_SIGNALS)  # the fork server is deaf to them
    if os.environ.get(SAFE_PATH) == OURS:  # programs that an environment starts know nothing of it
        del os.environ[SAFE_PATH]
    if manners.nice:
        os.nice(manners.nice)
    _end_with_parent()
    root = logging.getLogger()
    root.handlers[:] = [_LogSender(line)]
    root.setLevel(manners.log_level)


def _end_with_parent() -> None:
    """Nothing that this process is busy with keeps it from ending with its parent."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    assert parent.pid is not None
    ends = [parent.sentinel]  # a pipe that closes once nobody holds its other end
    if sys.platform == "linux":
        # The kernel sees to it, also where a simulator never lets go of the interpreter.
        fcntl.fcntl(parent.sentinel, fcntl.F_SETOWN, os.getpid())
        fcntl.fcntl(parent.sentinel, fcntl.F_SETSIG, signal.SIGKILL)
        flags = fcntl.fcntl(parent.sentinel, fcntl.F_GETFL)
        fcntl.fcntl(parent.sentinel, fcntl.F_SETFL, flags | os.O_ASYNC)
        # Whoever forked the parent holds the other end, too, and may live on.
        ends += _watched(parent.pid)
    threading.Thread(target=_wait_for_end, args=(ends,), name="parent's end", daemon=True).start()


def _watched(pid: int) -> list[int]:
    """What becomes readable once that process ends; nothing where the kernel has no such thing."""
    try:
        return [os.pidfd_open(pid)]
    except ProcessLookupError:
        os._exit(1)
    except OSError:
        return []


def _wait_for_end(ends: list[int]) -> None:
    while not wait(ends, _LOOK_AGAIN_S):
        pass
    os._exit(1)


class _LogSender(logging.Handler):
    """Sends what is logged in a child to the parent, as plain values."""

    def __init__(self, line: Line) -> None:
        super().__init__()
        self._line = line

    def emit(self, record: logging.LogRecord) -> None:
        try:
            text = self.format(record)
        except Exception:  # its arguments do not fit: said on the terminal, as everywhere
            self.handleError(record)
            return
        self._line.say(LOG, record.name, record.levelno, text)
