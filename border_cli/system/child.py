"""The code that runs in every child process: start and end, log, messages to the parent."""

from __future__ import annotations

import faulthandler
import fcntl
import logging
import multiprocessing
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from logging.handlers import QueueHandler
from multiprocessing import reduction
from multiprocessing.connection import Connection, wait
from typing import Any, Final

from border_cli.errors import BadStep, ClusterRefused
from border_cli.system.forks import PARENT_SIGNALS, STACK_SIGNAL, do_nothing
from border_cli.system.shared_memory import anonymous_file
from border_cli.system.start import OURS, SAFE_PATH

# Kinds of messages. A child may send others, which its parent stores in `inbox`.
LOG: Final = "log"  # logger, level, text
FAILED: Final = "failed"  # traceback
READY: Final = "ready"  # imports are complete
REFUSED: Final = "refused"  # an error to report without traceback

ASK_S = 0.5  # time that a running process needs to write its stacks
_LOOK_AGAIN_S = 60.0


class Pipe:
    """The child's end of the pipe to its parent. Any thread of the child may send."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._sending = threading.Lock()

    def send(self, kind: str, *values: Any) -> None:
        """Sends a message. Drops it if the parent is ending."""
        try:
            with self._sending:
                self._connection.send((kind, *values))
        except OSError:
            return

    def poll(self, timeout_s: float) -> bool:
        """Waits for a message or the end of the parent. Returns False after the timeout."""
        return self._connection.poll(timeout_s)

    def receive(self) -> Any:
        """Returns the parent's next message. Raises EOFError once the parent has closed its end."""
        return self._connection.recv()


class StackFile:
    """An anonymous file for the stacks of a child. It outlives the child.

    Can be pickled only when passed to a child process.
    """

    _fd = -1

    def __init__(self) -> None:
        self._fd = anonymous_file()

    def enable(self) -> None:
        """Writes the stacks of all threads to the file on `STACK_SIGNAL` and on a segmentation
        fault.

        The handler is C code and needs no interpreter lock, so it works during a call that never
        returns.
        """
        faulthandler.register(STACK_SIGNAL, file=self._fd, all_threads=True)
        faulthandler.enable(file=self._fd)

    def request(self, pid: int) -> str:
        """Returns the stacks of a child that has called `enable`; the signal ends any other."""
        with suppress(ProcessLookupError):
            os.kill(pid, STACK_SIGNAL)
        time.sleep(ASK_S)
        return self.read() or "(the process did not report its stack)"

    def read(self) -> str:
        """Returns the stacks written so far, for example by a crashed child; may be empty."""
        return os.pread(self._fd, os.fstat(self._fd).st_size, 0).decode(errors="replace")

    def close(self) -> None:
        """Closes the file. May be called twice."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    __del__ = close

    def __getstate__(self) -> dict[str, Any]:
        return {"fd": reduction.DupFd(self._fd)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._fd = state["fd"].detach()


def begin(
    main: Callable[..., None],
    args: tuple[Any, ...],
    nice: int,
    log_level: int,
    connection: Connection,
    stack: StackFile,
) -> None:
    """Runs `main(*args, pipe)` and exits. Reports a failure to the parent with its traceback.

    `nice` is added to the parent's niceness. Log records from `log_level` up go to the parent.
    """
    pipe = Pipe(connection)
    status = 0
    try:
        _prepare(nice, stack)
        root = logging.getLogger()
        root.handlers[:] = [_LogSender(pipe)]  # type: ignore[arg-type]
        root.setLevel(log_level)
        main(*args, pipe)
    except (BadStep, ClusterRefused) as error:
        pipe.send(REFUSED, error)
        status = 1
    except BaseException:
        pipe.send(FAILED, traceback.format_exc())
        status = 1
    connection.close()
    with suppress(OSError, ValueError):  # a reader of the streams may have exited
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(status)  # threads and exit handlers of an environment must not delay the exit


def _prepare(nice: int, stack: StackFile) -> None:
    """Prepares the child: it ignores `PARENT_SIGNALS`, reports its stacks and ends with its
    parent."""
    for signum in PARENT_SIGNALS:
        signal.signal(signum, do_nothing)
        signal.siginterrupt(signum, False)  # do not interrupt system calls of a simulator
    stack.enable()
    signal.pthread_sigmask(
        signal.SIG_UNBLOCK, PARENT_SIGNALS
    )  # they are blocked in the fork server
    if os.environ.get(SAFE_PATH) == OURS:  # do not pass it on to programs that the child starts
        del os.environ[SAFE_PATH]
    os.nice(nice)
    _end_with_parent()


def _end_with_parent() -> None:
    """Makes this process end with its parent, even in the middle of a call."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    assert parent.pid is not None
    ends = [parent.sentinel]  # readable once the last writer has closed it
    if sys.platform == "linux":
        # The kernel kills this process even if a simulator never releases the interpreter lock.
        fcntl.fcntl(parent.sentinel, fcntl.F_SETOWN, os.getpid())
        fcntl.fcntl(parent.sentinel, fcntl.F_SETSIG, signal.SIGKILL)
        flags = fcntl.fcntl(parent.sentinel, fcntl.F_GETFL)
        fcntl.fcntl(parent.sentinel, fcntl.F_SETFL, flags | os.O_ASYNC)
        # The process that forked the parent also holds the other end and may outlive it.
        ends += _open_pidfd(parent.pid)
    threading.Thread(target=_wait_for_end, args=(ends,), name="parent's end", daemon=True).start()


def _open_pidfd(pid: int) -> list[int]:
    """Returns a descriptor that becomes readable when a process ends, or none if the kernel does
    not support it. If the process has already ended, exits."""
    try:
        return [os.pidfd_open(pid)]
    except ProcessLookupError:
        os._exit(1)
    except OSError:
        return []


_ends_with: set[int] = set()


def end_with(pid: int) -> None:
    """Makes this process end with process `pid`, which started it indirectly."""
    if pid in _ends_with or not hasattr(os, "pidfd_open"):
        return
    _ends_with.add(pid)
    ends = _open_pidfd(pid)
    if ends:
        thread = threading.Thread(target=_wait_for_end, args=(ends,), name="command", daemon=True)
        thread.start()


def _wait_for_end(ends: list[int]) -> None:
    while not wait(ends, _LOOK_AGAIN_S):
        pass
    os._exit(1)


class _LogSender(QueueHandler):
    """Sends log records of a child to the parent as plain values."""

    def enqueue(self, record: logging.LogRecord) -> None:
        self.queue.send(LOG, record.name, record.levelno, record.getMessage())  # type: ignore[attr-defined]


def kill(pid: int) -> None:
    """Kills a child. Does nothing if it is already dead."""
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
