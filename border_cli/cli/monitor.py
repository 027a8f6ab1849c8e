"""A monitor process that ends a command where nothing inside the command can.

A call that never releases the interpreter lock (GIL) stops signal handlers, the watchdog and
every other thread. So a fork of the command, made before anything large is imported, watches it
from outside. A thread of the command sends it signs of life; the numbers of signals reach it
straight from Python's C handler (`signal.set_wakeup_fd`), which needs no lock. The monitor

- ends a command that gave no sign of life for `trainer.stall_timeout_s`, and shows its stacks,
- ends one that still runs 3 s after its second SIGINT, SIGTERM or SIGHUP,
- reports one that ended without a report: killed, crashed, or left by `os._exit`,

and then writes that into the `run.json` of the current run. A command that is stopped (Ctrl-Z,
SIGSTOP, a sleeping laptop) gives no signs either, and is left alone.

It is a child and not a parent, so that process ids, exit statuses, job control and signals are
those of the command itself. The price: it cannot change the status 0 of an `os._exit(0)`.
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
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, NoReturn

from border_cli.core.errors import BorderError
from border_cli.core.stacks import ask_for_stacks, show_stacks_on

log = logging.getLogger(__name__)

STALL_TIMEOUT_S = 60.0  # until a run has sent its own
STOP_GRACE_S = 3.0  # from the second signal on
TICK_S = 1.0  # between two checks, and between two signs of life, at most
STACK_NBYTES = 256 * 1024  # of the thread that gives signs of life; 8 MiB else count as its data
GONE_S = 5.0  # within which a killed process is gone

# Neither submitit's (SIGUSR2) nor the C library's own. None: this system has no such signals.
STACKS_SIGNAL = signal.SIGRTMIN + 10 if hasattr(signal, "SIGRTMIN") else None
STOPPING = ("SIGINT", "SIGTERM", "SIGHUP")
# What terminals, shells and schedulers send to a whole process group is for the command.
NOT_FOR_THE_MONITOR = (
    *STOPPING,
    *("SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGPIPE", "SIGTSTP", "SIGTTIN", "SIGTTOU"),
)
# Messages to the monitor: each a word, `=`, a value and a zero byte, which no path has.
ALIVE: Final = "alive"
TIMEOUT: Final = "timeout"  # seconds
RUN_DIR: Final = "run_dir"  # empty: no run is running
FAREWELL: Final = "farewell"  # the end of the command is intended, whatever follows

SHOW_CURSOR = b"\x1b[?25h"  # a live panel hides it


# In the command


class Monitor:
    """The command's end of the pipe; one per process, made by its main thread.

    `send` may be called by any thread and by a signal handler.
    """

    def __init__(self, signs: int, signals: int) -> None:
        self._signs = signs  # the pipe to the monitor, which never blocks
        self._signals = signals  # where C writes the numbers of signals
        self._every_s = TICK_S
        self._changed = threading.Event()
        before = threading.stack_size(STACK_NBYTES)
        threading.Thread(target=self._run, name="signs of life", daemon=True).start()
        threading.stack_size(before)

    def hear_signals(self) -> None:
        """Has every signal reported to the monitor; only the main thread can."""
        signal.set_wakeup_fd(self._signals, warn_on_full_buffer=False)

    def send(self, word: str, value: object = "") -> None:
        """Any message is a sign of life. BrokenPipeError: the monitor has exited."""
        with suppress(BlockingIOError):  # the monitor is stopped, and its pipe full
            os.write(self._signs, os.fsencode(f"{word}={value}\0"))

    def expect(self, timeout_s: float) -> None:
        """From now on signs of life come often enough for this timeout."""
        self._every_s = _tick_s(timeout_s)
        self._changed.set()

    def _run(self) -> None:
        try:
            while True:
                self._changed.wait(self._every_s)
                self._changed.clear()
                self.send(ALIVE)
        except BrokenPipeError:
            log.warning(
                "the monitor process exited: a call that never releases the interpreter lock "
                "can no longer be ended"
            )


_monitor: Monitor | None = None  # of this process, like its signal handlers


@contextmanager
def monitored(command: str) -> Iterator[None]:
    """Runs the block, the whole command, under a monitor. The main thread calls this first.

    Where no process can be forked, the command runs without one.
    """
    global _monitor
    faulthandler.enable()  # a segmentation fault shows where it was
    _monitor = _start(command)
    try:
        yield
    finally:
        _send(FAREWELL)


@contextmanager
def watching(run_dir: Path, timeout_s: float) -> Iterator[None]:
    """Within the block the monitor knows the run, and its `trainer.stall_timeout_s`.

    Here and below nothing happens where there is no monitor, as for callers of `border_cli.train`.
    """
    expect(timeout_s)
    _send(RUN_DIR, run_dir.absolute())
    try:
        yield
    finally:
        _send(RUN_DIR)


def expect(timeout_s: float) -> None:
    """From now on a command that gives no sign of life for `timeout_s` is ended."""
    if _monitor is not None:
        _monitor.expect(timeout_s)
        _send(TIMEOUT, timeout_s)


def hear_signals() -> None:
    """Reports signals to the monitor again, after another library (asyncio) took them over."""
    if _monitor is not None:
        _monitor.hear_signals()


def leave(status: int) -> NoReturn:
    """Ends this process immediately, whatever its threads do."""
    _send(FAREWELL)
    os._exit(status)


def _send(word: str, value: object = "") -> None:
    if _monitor is not None:
        with suppress(OSError):
            _monitor.send(word, value)


def _start(command: str) -> Monitor | None:
    if not hasattr(os, "fork"):
        return None
    signs, tells = os.pipe()
    # This process keeps the reading end, too: C complains of a pipe without a reader.
    numbers, signals = os.pipe()
    stacks = os.memfd_create("border_cli") if hasattr(os, "memfd_create") else None
    watched = os.getpid()
    try:
        pid = os.fork()
    except OSError as error:
        sys.stderr.write(f"{command}: no monitor process could be started: {error}\n")
        return None
    if pid == 0:
        for each in (tells, signals):
            os.close(each)
        try:
            Watcher(command, watched, signs=signs, numbers=numbers, stacks=stacks).run()
        except Exception:
            log.exception("%s: its monitor process failed", command)
        finally:
            os._exit(0)
    os.close(signs)
    for each in (tells, signals):
        os.set_blocking(each, False)
    if stacks is not None and STACKS_SIGNAL is not None:
        show_stacks_on(STACKS_SIGNAL, stacks)
    # A child that an environment forks has Python's handlers, too; its signals do not count.
    os.register_at_fork(after_in_child=_without_monitor)
    monitor = Monitor(tells, signals)
    monitor.hear_signals()
    return monitor


def _without_monitor() -> None:
    global _monitor
    _monitor = None
    signal.set_wakeup_fd(-1)


# In the monitor


class Vigil:
    """What the monitor knows of the command: messages and time are handed in."""

    def __init__(self) -> None:
        self.timeout_s = STALL_TIMEOUT_S
        self.run_dir = ""  # of the current run, if any
        self.farewell = False
        self.silent_s = 0.0
        self.stops: list[str] = []  # signals that asked it to end
        self.ignored_s = 0.0  # since the second of them

    def hear(self, message: str) -> None:
        """Any message is a sign of life."""
        self.silent_s = 0.0
        word, _, value = message.partition("=")
        if word == TIMEOUT:
            self.timeout_s = float(value)
        elif word == RUN_DIR:
            self.run_dir = value
        elif word == FAREWELL:
            self.farewell = True

    def hear_signal(self, signum: int) -> None:
        """The command has received a signal that Python handles."""
        name = signal.Signals(signum).name if signum in signal.valid_signals() else ""
        if name in STOPPING:
            self.stops.append(name)

    def wait(self, seconds: float, *, stopped: bool) -> None:
        """Counts `seconds` without a message.

        A command that is `stopped` owes no sign. Nor does one that slept together with this
        process, as on a suspended machine: more than two ticks at a time do not count.
        """
        if stopped:
            self.silent_s = self.ignored_s = 0.0
            return
        seconds = min(seconds, 2 * self.tick_s)
        self.silent_s += seconds
        self.ignored_s += seconds if len(self.stops) > 1 else 0.0

    @property
    def tick_s(self) -> float:
        return _tick_s(min(self.timeout_s, STOP_GRACE_S) if self.stops else self.timeout_s)

    @property
    def is_stuck(self) -> bool:
        return self.silent_s >= self.timeout_s and not self.farewell

    @property
    def is_deaf(self) -> bool:
        return self.ignored_s >= STOP_GRACE_S


class Watcher:
    """The monitor process: checks the command, and ends it where it must. It never returns."""

    def __init__(
        self, command: str, pid: int, *, signs: int, numbers: int, stacks: int | None
    ) -> None:
        self._command = command
        self._pid = pid
        self._signs = signs
        self._numbers = numbers
        self._stacks = stacks
        self._vigil = Vigil()
        self._rest = b""  # of a message that is not whole
        self._poll = select.poll()
        for each in (signs, numbers, *_end_of(pid)):
            self._poll.register(each, select.POLLIN)

    def run(self) -> None:
        """Until the command has ended."""
        for name in NOT_FOR_THE_MONITOR:
            if hasattr(signal, name):
                signal.signal(getattr(signal, name), signal.SIG_IGN)
        os.close(0)
        vigil = self._vigil
        while not self._is_gone:
            if vigil.is_stuck:
                return self._end_stuck()
            if vigil.is_deaf:
                return self._end_deaf()
            self._check()
        self._hear()  # the last messages
        if not vigil.farewell:
            reason = "ended without a report: killed, crashed, or ended by os._exit"
            self._say(f"{reason}\n")
            self._record("killed", reason)
        return None

    def _check(self) -> None:
        began_s = time.monotonic()
        self._poll.poll(self._vigil.tick_s * 1000)
        stopped = self._vigil.silent_s > 0 and is_stopped(self._pid)
        self._vigil.wait(time.monotonic() - began_s, stopped=stopped)
        self._hear()

    def _hear(self) -> None:
        """Reads what has arrived."""
        for file, event in self._poll.poll(0):
            if file == self._signs and event & select.POLLIN:
                *messages, self._rest = (self._rest + os.read(file, 65536)).split(b"\0")
                for message in messages:
                    self._vigil.hear(os.fsdecode(message))
            elif file == self._numbers and event & select.POLLIN:
                for signum in os.read(file, 4096):
                    self._vigil.hear_signal(signum)
            elif file in (self._signs, self._numbers):  # closed: by its end, or by an environment
                self._poll.unregister(file)
                self._vigil.timeout_s = math.inf

    def _end_stuck(self) -> None:
        what = (
            f"no Python code ran for {self._vigil.timeout_s:g} s (trainer.stall_timeout_s): a call "
            "holds the interpreter lock (GIL)"
        )
        stacks = ""
        if self._stacks is not None and STACKS_SIGNAL is not None:
            stacks = ask_for_stacks(self._pid, STACKS_SIGNAL, self._stacks)
        self._say(f"{what}; killing it. Stacks of its threads:\n{stacks}")
        self._kill()
        self._record("failed", f"Stalled: {what}", stacks)

    def _end_deaf(self) -> None:
        first, last = self._vigil.stops[0], self._vigil.stops[-1]
        what = f"{first} and {last} were not answered within {STOP_GRACE_S:g} s"
        self._say(f"{what}; killing it\n")
        self._kill()
        self._record("interrupted", f"killed: {what}")

    @property
    def _is_gone(self) -> bool:
        return os.getppid() != self._pid

    def _kill(self) -> None:
        os.kill(self._pid, signal.SIGKILL)
        ended, until_s = select.poll(), time.monotonic() + GONE_S
        for each in _end_of(self._pid):
            ended.register(each, select.POLLIN)
        while not self._is_gone and time.monotonic() < until_s:
            ended.poll(50)

    def _say(self, text: str) -> None:
        """On the terminal and in the log of the run."""
        message = f"{self._command}: {text}".encode()
        if os.isatty(1):
            _write(1, SHOW_CURSOR)
        _write(2, b"\n" + message)
        if self._vigil.run_dir:
            with suppress(OSError):
                log_file = Path(self._vigil.run_dir) / "border-train.log"
                _write(os.open(log_file, os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW), message)

    def _record(self, status: str, reason: str, stacks: str = "") -> None:
        """In the `run.json` of the run; a failure to write is ignored."""
        if not self._vigil.run_dir:
            return
        from border_cli.run.status import end_from_outside

        facts = {"traceback": stacks} if stacks else {}
        with suppress(OSError, BorderError):
            run_dir = Path(self._vigil.run_dir)
            end_from_outside(run_dir, self._pid, status, reason, **facts)


def _tick_s(timeout_s: float) -> float:
    return min(TICK_S, timeout_s / 4)


def _end_of(pid: int) -> list[int]:
    """What becomes readable when the process ends; nothing where the system has no such thing."""
    if not hasattr(os, "pidfd_open"):
        return []
    try:
        return [os.pidfd_open(pid)]
    except OSError:
        return []


def is_stopped(pid: int) -> bool:
    """Whether a process is stopped, by a signal or a debugger."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:  # it is gone, or there is no /proc
        return False
    return stat.rpartition(")")[2].split()[0] in "Tt"


def _write(file: int, text: bytes) -> None:
    with suppress(OSError):
        os.write(file, text)
