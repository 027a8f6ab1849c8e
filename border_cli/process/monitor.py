"""A monitor process that kills a command that is stuck.

A call that never releases the interpreter lock (GIL) blocks signal handlers, the watchdog and every
other thread. The command is therefore watched from outside, by a fork that it creates before any
large import. The monitor

- forwards a Ctrl-C to the command,
- kills a command that has sent no heartbeat for `trainer.stall_timeout_s`, after making it dump
  its stack traces,
- kills a command that is still running 3 s after a second Ctrl-C,

and records the reason in the `run.json` of the current run. A command that is stopped (Ctrl-Z,
SIGSTOP, a sleeping laptop) sends no heartbeats either, but is not killed.

The monitor is a child of the command and not its parent, so that process ids, exit statuses, job
control and signals remain those of the command.
"""

from __future__ import annotations

import faulthandler
import logging
import math
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import NoReturn

from border_cli.errors import BorderError
from border_cli.messages import complain
from border_cli.system.forks import STACK_SIGNAL
from border_cli.system.streams import prepare_streams

STALL_TIMEOUT_S = 60.0  # default until a run sends its own timeout
LEAST_S = 1.0  # lower bound on the timeout
STOP_GRACE_S = 3.0  # time to exit after a second Ctrl-C, or after the command's work has ended
APART_S = 0.5  # minimum time between two signals that are counted separately
TICK_S = 0.25  # interval between heartbeats

STACKS_S = 0.5  # time for the command to dump its stack traces
CTRL_C = signal.SIGURG  # forwards a Ctrl-C; ignored by processes without a handler
SHOW_CURSOR = "\x1b[?25h"  # a live panel hides the cursor


class SignalCount:
    """Counts signals, ignoring any that arrive within `APART_S` of the last counted one.

    `timeout` signals both the command and its process group, and a terminal or a scheduler may send
    another signal at the same time.
    """

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self.times_s: list[float] = []  # times of the counted signals
        self._counting = False

    def register(self) -> bool:
        """Returns whether a signal that arrives now counts, and if so records its time. A signal
        that interrupts the handler of another signal does not count."""
        if self._counting:
            return False
        self._counting = True
        now_s = self._now_s()
        apart = now_s - max(self.times_s, default=-math.inf) >= APART_S
        if apart:
            self.times_s.append(now_s)
        self._counting = False
        return apart


# Functions that run in the command's process

_pipe: int | None = None  # write end of the pipe to the monitor; None without a monitor


@contextmanager
def monitored(command: str) -> Iterator[None]:
    """Runs the block (the whole command) under a monitor. Call this first, in the main thread."""
    global _pipe
    prepare_streams()
    faulthandler.enable()  # prints a traceback on a segmentation fault
    _pipe = _start_monitor(command)
    threading.Thread(target=_send_heartbeats, name="heartbeats", daemon=True).start()
    status = 1
    try:
        yield
        status = 0
    except SystemExit as end:
        # `sys.exit(text)`, for example of a user's module, prints the text and exits with 1.
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
        raise
    finally:
        set_stall_timeout(math.inf)
        if leftovers := _find_leftovers():
            timer = threading.Timer(STOP_GRACE_S, _exit_despite, [command, leftovers, status])
            timer.daemon = True
            timer.start()


@contextmanager
def watching(run_dir: Path, timeout_s: float) -> Iterator[None]:
    """Makes the monitor watch a run within the block, with its `trainer.stall_timeout_s`.

    This function and `set_stall_timeout` do nothing without a monitor, as for callers of
    `border_cli.train`.
    """
    _send(f"{timeout_s} {run_dir.absolute()}")
    try:
        yield
    finally:
        set_stall_timeout(timeout_s)


def set_stall_timeout(timeout_s: float) -> None:
    """Sets how long a command may go without a heartbeat before it is killed, and clears the
    current run. Use infinity before an intentional exit, which may take any amount of time."""
    _send(f"{timeout_s} ")


def is_monitored() -> bool:
    """Returns whether this process is a monitored command, so that our code may end it."""
    return _pipe is not None


def exit_immediately(status: int) -> NoReturn:
    """Exits immediately, without waiting for threads."""
    os._exit(status)


def flush_and_exit(status: int) -> NoReturn:
    """Exits even though a thread hangs, after flushing the log and the output streams."""
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError):
            stream.flush()
    exit_immediately(status)


def _find_leftovers() -> list[str]:
    """Returns the names of threads and processes that an environment left running, and that Python
    would wait for at exit."""
    processes = sys.modules.get("multiprocessing")  # None unless multiprocessing is imported
    parts = [*threading.enumerate(), *(processes.active_children() if processes else ())]
    return [part.name for part in parts if not part.daemon and part is not threading.main_thread()]


def _exit_despite(command: str, leftovers: list[str], status: int) -> None:
    """Exits a finished command although an environment left threads or processes running."""
    complain(command, f"exiting without waiting any longer for {', '.join(leftovers)}")
    flush_and_exit(status)


def _send_heartbeats() -> None:
    while True:
        time.sleep(TICK_S)
        _send("")


def _send(message: str) -> None:
    if _pipe is not None:
        with suppress(OSError):  # the monitor has exited, or is stopped and its pipe is full
            os.write(_pipe, os.fsencode(f"{message}\0"))


def _start_monitor(command: str) -> int:
    read_end, write_end = os.pipe()
    faulthandler.register(STACK_SIGNAL)  # implemented in C: needs no interpreter lock
    command_pid = os.getpid()
    if os.fork() == 0:
        os.close(write_end)
        Monitor(command, command_pid, read_end).run()
        os._exit(0)
    os.close(read_end)
    os.set_blocking(write_end, False)
    return write_end


# The monitor's process


class Monitor:
    """The monitor process, which receives messages from the command and kills it if it is stuck.

    An empty message is a heartbeat. Any other message contains a timeout and the directory of the
    current run.
    """

    def __init__(self, command: str, pid: int, read_end: int) -> None:
        self._command = command
        self._pid = pid
        self._read_end = read_end
        self._timeout_s = STALL_TIMEOUT_S
        self._run_dir = ""  # empty if no run is active
        self._silent_s = 0.0
        self._interrupts = SignalCount()

    def run(self) -> None:
        """Watches the command until it ends or is killed."""
        # Signals to the whole process group (terminal, shell, scheduler) are for the command.
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals() - {signal.SIGINT})
        signal.signal(signal.SIGINT, self._forward)
        while not self._is_gone:
            if self.is_stuck:
                problem = (
                    f"no Python code ran for {self._timeout_s:g} s (trainer.stall_timeout_s): a "
                    "call holds the interpreter lock (GIL)"
                )
                return self._kill("failed", problem, problem)
            if any(
                time_s + STOP_GRACE_S <= time.monotonic() for time_s in self._interrupts.times_s[1:]
            ):
                problem = f"the command did not exit within {STOP_GRACE_S:g} s of a second Ctrl-C"
                return self._kill("interrupted", f"killed: {problem}", problem)
            self._listen()
        return None

    def _forward(self, signum: int, frame: FrameType | None) -> None:  # noqa: ARG002 - Python's own
        """Forwards a Ctrl-C: a solver in C may have replaced the command's handler of SIGINT."""
        if self._interrupts.register():
            with suppress(ProcessLookupError):
                os.kill(self._pid, CTRL_C)

    def receive(self, message: str) -> None:
        """Processes a message."""
        self._silent_s = 0.0
        if message:
            timeout, _, self._run_dir = message.partition(" ")
            self._timeout_s = float(timeout)

    def count_silent_tick(self, *, stopped: bool) -> None:
        """Counts a tick without a message; if the command is stopped, resets the count.

        Counts ticks instead of time, because both processes sleep on a suspended machine.
        """
        self._silent_s = 0.0 if stopped else self._silent_s + TICK_S

    @property
    def is_stuck(self) -> bool:
        return self._silent_s >= max(LEAST_S, self._timeout_s)

    @property
    def _is_gone(self) -> bool:
        return os.getppid() != self._pid

    def _listen(self) -> None:
        """Waits up to one tick for messages. All pending messages fit into the pipe and into one
        read."""
        if not select.select([self._read_end], [], [], TICK_S)[0]:
            self.count_silent_tick(stopped=is_stopped(self._pid))
            return
        data = os.read(self._read_end, 65536)
        if not data:  # the command has ended, or an environment has closed the pipe
            time.sleep(TICK_S / 50)
        for message in data.split(b"\0")[:-1]:
            self.receive(os.fsdecode(message))

    def _kill(self, status: str, reason: str, problem: str) -> None:
        """Makes the command dump its stack traces, records its end in the `run.json` of its run,
        and kills it. The end is recorded before the kill, because the parent of a killed command
        records an end as well. Write errors are ignored."""
        cursor = SHOW_CURSOR if os.isatty(2) else ""
        with suppress(OSError):
            os.write(2, f"{cursor}\n{self._command}: {problem}; killing it\n".encode())
        with suppress(ProcessLookupError):
            os.kill(self._pid, STACK_SIGNAL)
            time.sleep(STACKS_S)
        if self._run_dir:
            # imported late: the fork comes before all imports
            from border_cli.run.status import end_from_outside

            with suppress(OSError, BorderError):
                end_from_outside(Path(self._run_dir), self._pid, status, reason, stuck=True)
        with suppress(ProcessLookupError):
            os.kill(self._pid, signal.SIGKILL)


def is_stopped(pid: int) -> bool:
    """Returns whether a process is stopped, by a signal or a debugger."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:  # the process has exited, or there is no /proc
        return False
    return stat.rpartition(")")[2].split()[0] in "Tt"
