"""The begin and end of every child process, its log and its messages to its parent."""

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

# The first word of a message; a child may send others, which its parent finds in `inbox`.
LOG: Final = "log"  # logger, level, text
FAILED: Final = "failed"  # traceback
READY: Final = "ready"  # what it needs is imported
REFUSED: Final = "refused"  # an error that needs no traceback

ASK_S = 0.5  # within which a process that runs at all has written its stacks
_LOOK_AGAIN_S = 60.0


class Pipe:
    """A child's end of the pipe to its parent; any thread of the child may send."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._sending = threading.Lock()

    def send(self, kind: str, *values: Any) -> None:
        """Sends a message; it is dropped where the parent is ending."""
        try:
            with self._sending:
                self._connection.send((kind, *values))
        except OSError:
            return

    def poll(self, timeout_s: float) -> bool:
        """Waits for news: a message, or that the parent has closed its end."""
        return self._connection.poll(timeout_s)

    def receive(self) -> Any:
        """The parent's next message; raises EOFError once the parent has closed its end."""
        return self._connection.recv()


class StackFile:
    """An anonymous file for the child's stack, which survives the child.

    Picklable on the way into a child only.
    """

    _fd = -1

    def __init__(self) -> None:
        self._fd = anonymous_file()

    def show(self) -> None:
        """From now on `STACK_SIGNAL` makes this process write the stacks of all its threads there,
        and so does a segmentation fault.

        The handler is C and needs no interpreter lock: a call that never returns is shown, too.
        """
        faulthandler.register(STACK_SIGNAL, file=self._fd, all_threads=True)
        faulthandler.enable(file=self._fd)

    def ask(self, pid: int) -> str:
        """The stacks of that process, which must be a child that was given this file."""
        with suppress(ProcessLookupError):
            os.kill(pid, STACK_SIGNAL)
        time.sleep(ASK_S)
        return self.written() or "(the process did not report its stack)"

    def written(self) -> str:
        """All stacks so far, as that of a child that a fault has ended; empty if there is none."""
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


def begin(
    main: Callable[..., None],
    args: tuple[Any, ...],
    nice: int,
    log_level: int,
    connection: Connection,
    stack: StackFile,
) -> None:
    """Runs `main(*args, pipe)` and exits; reports a failure to the parent with its traceback.

    `nice` is added to the parent's; what is logged from `log_level` on goes to the parent's log.
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
    with suppress(OSError, ValueError):  # their readers may be gone
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(status)  # an environment's own threads and exit handlers must not hold us up


def _prepare(nice: int, stack: StackFile) -> None:
    """The parent decides when a child ends: it ignores Ctrl-C and never outlives the parent."""
    for signum in PARENT_SIGNALS:
        signal.signal(signum, do_nothing)
        signal.siginterrupt(signum, False)  # system calls of a simulator go on
    stack.show()
    signal.pthread_sigmask(signal.SIG_UNBLOCK, PARENT_SIGNALS)  # blocked in the fork server
    if os.environ.get(SAFE_PATH) == OURS:  # not for programs that it starts
        del os.environ[SAFE_PATH]
    os.nice(nice)
    _end_with_parent()


def _end_with_parent() -> None:
    """Ends this process with its parent, whatever it is doing then."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    assert parent.pid is not None
    ends = [parent.sentinel]  # a pipe that closes with its last writer
    if sys.platform == "linux":
        # By the kernel, also where a simulator never releases the interpreter.
        fcntl.fcntl(parent.sentinel, fcntl.F_SETOWN, os.getpid())
        fcntl.fcntl(parent.sentinel, fcntl.F_SETSIG, signal.SIGKILL)
        flags = fcntl.fcntl(parent.sentinel, fcntl.F_GETFL)
        fcntl.fcntl(parent.sentinel, fcntl.F_SETFL, flags | os.O_ASYNC)
        # The process that forked the parent holds the other end, too, and may outlive it.
        ends += _watched(parent.pid)
    threading.Thread(target=_wait_for_end, args=(ends,), name="parent's end", daemon=True).start()


def _watched(pid: int) -> list[int]:
    """A descriptor that is readable once that process ends, if the kernel has such."""
    try:
        return [os.pidfd_open(pid)]
    except ProcessLookupError:
        os._exit(1)
    except OSError:
        return []


_ends_with: set[int] = set()


def end_with(pid: int) -> None:
    """Ends this process with that one, which began it by way of others."""
    if pid in _ends_with or not hasattr(os, "pidfd_open"):
        return
    _ends_with.add(pid)
    ends = _watched(pid)
    if ends:
        watch = threading.Thread(target=_wait_for_end, args=(ends,), name="command", daemon=True)
        watch.start()


def _wait_for_end(ends: list[int]) -> None:
    while not wait(ends, _LOOK_AGAIN_S):
        pass
    os._exit(1)


class _LogSender(QueueHandler):
    """Sends what is logged in a child to the parent, as plain values."""

    def enqueue(self, record: logging.LogRecord) -> None:
        self.queue.send(LOG, record.name, record.levelno, record.getMessage())  # type: ignore[attr-defined]


def kill(pid: int) -> None:
    """Kills a child; does nothing if it is dead already."""
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
