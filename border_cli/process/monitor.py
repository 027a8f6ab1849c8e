"""A monitor process that ends a command where nothing inside the command can.

A call that never releases the interpreter lock (GIL) stops signal handlers, the watchdog and every
other thread. So a fork of the command, made before anything large is imported, watches it from
outside. It

- passes a Ctrl-C on, which a terminal sends to both,
- ends a command that gave no sign of life for `trainer.stall_timeout_s`, and has it show its
  stacks,
- ends one that still runs 3 s after a second Ctrl-C,

and writes that into the `run.json` of the current run. A command that is stopped (Ctrl-Z, SIGSTOP,
a sleeping laptop) gives no signs either, and is left alone.

The monitor is a child and not a parent, so that process ids, exit statuses, job control and signals
are those of the command itself.
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

STALL_TIMEOUT_S = 60.0  # until a run has sent its own
LEAST_S = 1.0  # of silence, however short the timeout
STOP_GRACE_S = 3.0  # from the second Ctrl-C on, and from the end of a command's work
APART_S = 0.5  # between two signals that count as two
TICK_S = 0.25  # between two signs of life

STACKS_S = 0.5  # within which a process that runs at all has shown its stacks
CTRL_C = signal.SIGURG  # passes a Ctrl-C on; ignored where there is no handler
SHOW_CURSOR = "\x1b[?25h"  # a live panel hides it


class SignalCount:
    """Signals that count: none does within `APART_S` of the last one that did.

    `timeout` sends its signal to the command and to the process group, and a terminal or a
    scheduler may send one of its own with it.
    """

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self.times_s: list[float] = []  # when those that count came
        self._counting = False

    def counts(self) -> bool:
        """Whether a signal that arrives now counts; one within the handler of another does not."""
        if self._counting:
            return False
        self._counting = True
        now_s = self._now_s()
        apart = now_s - max(self.times_s, default=-math.inf) >= APART_S
        if apart:
            self.times_s.append(now_s)
        self._counting = False
        return apart


# In the command

_pipe: int | None = None  # to the monitor of this process


@contextmanager
def monitored(command: str) -> Iterator[None]:
    """Runs the block, the whole command, under a monitor. The main thread calls this first."""
    global _pipe
    prepare_streams()
    faulthandler.enable()  # a segmentation fault shows where it was
    _pipe = _start(command)
    threading.Thread(target=_give_signs, name="signs of life", daemon=True).start()
    status = 1
    try:
        yield
        status = 0
    except SystemExit as end:
        status = int(end.code or 0)
        raise
    finally:
        expect(math.inf)
        if left := _left_behind():
            timer = threading.Timer(STOP_GRACE_S, _leave_behind, [command, left, status])
            timer.daemon = True
            timer.start()


@contextmanager
def watching(run_dir: Path, timeout_s: float) -> Iterator[None]:
    """Within the block the monitor knows the run, and its `trainer.stall_timeout_s`.

    Here and below nothing happens where there is no monitor, as for callers of `border_cli.train`.
    """
    _tell(f"{timeout_s} {run_dir.absolute()}")
    try:
        yield
    finally:
        expect(timeout_s)


def expect(timeout_s: float) -> None:
    """From now on a command that gives no sign of life for `timeout_s` is ended; infinite before
    an intended end, whatever follows."""
    _tell(f"{timeout_s} ")


def is_monitored() -> bool:
    """Whether this process is a command, which may end itself."""
    return _pipe is not None


def leave(status: int) -> NoReturn:
    """Ends this process immediately, whatever its threads do."""
    os._exit(status)


def leave_now(status: int) -> NoReturn:
    """Ends this process although a thread of it hangs, once its log and output are written."""
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError):
            stream.flush()
    leave(status)


def _left_behind() -> list[str]:
    """Threads and processes that an environment has left, and that Python waits for at its end."""
    processes = sys.modules.get("multiprocessing")  # not imported for this alone
    parts = [*threading.enumerate(), *(processes.active_children() if processes else ())]
    return [each.name for each in parts if not each.daemon and each is not threading.main_thread()]


def _leave_behind(command: str, left: list[str], status: int) -> None:
    """Ends a command that has ended but for what an environment has left."""
    complain(command, f"ends without waiting any longer for {', '.join(left)}")
    leave_now(status)


def _give_signs() -> None:
    while True:
        time.sleep(TICK_S)
        _tell("")


def _tell(message: str) -> None:
    if _pipe is not None:
        with suppress(OSError):  # the monitor is gone, or is stopped and its pipe full
            os.write(_pipe, os.fsencode(f"{message}\0"))


def _start(command: str) -> int:
    signs, pipe = os.pipe()
    faulthandler.register(STACK_SIGNAL)  # in C, without the interpreter lock
    watched = os.getpid()
    if os.fork() == 0:
        os.close(pipe)
        Monitor(command, watched, signs).run()
        os._exit(0)
    os.close(signs)
    os.set_blocking(pipe, False)
    return pipe


# In the monitor


class Monitor:
    """The monitor process: hears the command, and ends it where it must.

    An empty message is a sign of life; any other is a timeout and the directory of the current run.
    """

    def __init__(self, command: str, pid: int, signs: int) -> None:
        self._command = command
        self._pid = pid
        self._signs = signs
        self._timeout_s = STALL_TIMEOUT_S
        self._run_dir = ""  # empty while no run is running
        self._silent_s = 0.0
        self._interrupts = SignalCount()

    def run(self) -> None:
        """Until the command has ended."""
        # What terminals, shells and schedulers send to a whole process group is for the command.
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals() - {signal.SIGINT})
        signal.signal(signal.SIGINT, self._pass_on)
        while not self._is_gone:
            if self.is_stuck:
                what = (
                    f"no Python code ran for {self._timeout_s:g} s (trainer.stall_timeout_s): a "
                    "call holds the interpreter lock (GIL)"
                )
                return self._end("failed", what, what)
            if any(
                each + STOP_GRACE_S <= time.monotonic() for each in self._interrupts.times_s[1:]
            ):
                what = f"a second Ctrl-C was not answered within {STOP_GRACE_S:g} s"
                return self._end("interrupted", f"killed: {what}", what)
            self._listen()
        return None

    def _pass_on(self, signum: int, frame: FrameType | None) -> None:  # noqa: ARG002 - Python's own
        """Tells the command of a Ctrl-C: a solver in C may have replaced its handler of SIGINT."""
        if self._interrupts.counts():
            with suppress(ProcessLookupError):
                os.kill(self._pid, CTRL_C)

    def hear(self, message: str) -> None:
        """Takes in a message."""
        self._silent_s = 0.0
        if message:
            timeout, _, self._run_dir = message.partition(" ")
            self._timeout_s = float(timeout)

    def miss(self, *, stopped: bool) -> None:
        """Counts a tick without a message; a command that is `stopped` owes none.

        Ticks and not time, because both processes sleep on a suspended machine.
        """
        self._silent_s = 0.0 if stopped else self._silent_s + TICK_S

    @property
    def is_stuck(self) -> bool:
        return self._silent_s >= max(LEAST_S, self._timeout_s)

    @property
    def _is_gone(self) -> bool:
        return os.getppid() != self._pid

    def _listen(self) -> None:
        """Waits a tick for messages. All fit into the pipe, and into one read."""
        if not select.select([self._signs], [], [], TICK_S)[0]:
            self.miss(stopped=is_stopped(self._pid))
            return
        arrived = os.read(self._signs, 65536)
        if not arrived:  # closed by the end of the command, or by an environment
            time.sleep(TICK_S / 50)
        for message in arrived.split(b"\0")[:-1]:
            self.hear(os.fsdecode(message))

    def _end(self, status: str, reason: str, what: str) -> None:
        """Has the command show its stacks, writes its end into the `run.json` of its run, and kills
        it; in this order, because who started it writes an end, too. A failure to write is
        ignored."""
        cursor = SHOW_CURSOR if os.isatty(2) else ""
        with suppress(OSError):
            os.write(2, f"{cursor}\n{self._command}: {what}; killing it\n".encode())
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
    """Whether a process is stopped, by a signal or a debugger."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:  # it is gone, or there is no /proc
        return False
    return stat.rpartition(")")[2].split()[0] in "Tt"
