"""Ctrl-C and similar signals: the first one stops and saves, a second one quits immediately. Those
within half a second of each other count once.

Inside loops (a run, border-eval, border-record) a handler only sets a `StopFlag`, because Python
drops exceptions raised by a handler inside a weak reference callback. Outside of loops it raises
KeyboardInterrupt.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType

from border_cli.core.stop import SaveFlag, StopFlag
from border_cli.errors import Interrupted
from border_cli.process.monitor import CTRL_C, SHOW_CURSOR, SignalCount, leave
from border_cli.recorder.panel_line import panel_line
from border_cli.system.forks import PARENT_SIGNALS

log = logging.getLogger(__name__)

*STOPPING, SAVE, REQUEUE = PARENT_SIGNALS

CLEAR_LINE = "\x1b[2K"
AGAIN = "; press Ctrl-C again to quit immediately"
INSTALL_S = 0.001  # between two installations of the handler, which take 3 us
NOTICE_S = 5.0  # that the panel shows a message of no lasting interest

Handler = Callable[[int, FrameType | None], object]

# Of this process, as handlers are: of two signals the second may reach an earlier handler, which a
# run that has saved in between has restored. Each block below counts its first signal.
_signals = SignalCount()


class EarlySignals:
    """Handles signals while no job listens. Owned by the main thread, which runs the handlers."""

    def __init__(self) -> None:
        self.stop = StopFlag()
        self.signum: int = signal.SIGINT
        self._polled = False  # the command polls the flag
        _signals.times_s.clear()

    @property
    def exit_status(self) -> int:
        return 128 + self.signum

    def leave(self, signum: int, frame: FrameType | None) -> None:  # noqa: ARG002 - Python's own
        """Leaves by way of all `finally`s; the second time immediately."""
        if not _signals.counts():
            return
        self.signum = _counted(signum)
        if self.stop.requested:
            leave(self.exit_status)
        self.stop.request(Interrupted(self.signum))
        if not self._polled:
            raise KeyboardInterrupt

    @contextmanager
    def polled(self) -> Iterator[StopFlag]:
        """Within the block signals set the flag and raise nothing: for loops that poll it.

        Python drops what a handler raises while a `__del__` or the callback of a weak reference
        runs. h5py has one for every object: they swallowed 13 of 100 Ctrl-Cs to `border-record`.
        """
        self._polled = True
        try:
            yield self.stop
        finally:
            self._polled = False


@contextmanager
def early_signals() -> Iterator[EarlySignals]:
    """Within the block, SIGINT, SIGTERM and SIGHUP raise KeyboardInterrupt: SIGTERM otherwise runs
    no `finally`.

    For the whole command, from before the first slow import. SIGINT is heard even where it was
    ignored, as it is by a command that a script starts with `&`; SIGHUP is not, because that is
    what `nohup` asks for. The previous handlers come back. SIGUSR1, which otherwise kills, stays
    ignored after the block: a run that has ended must not look killed.
    """
    if signal.getsignal(SAVE) == signal.SIG_DFL:
        signal.signal(SAVE, signal.SIG_IGN)
    early = EarlySignals()
    with _handling(STOPPING, early.leave):
        yield early


@contextmanager
def stopping_on_signals(
    stop: StopFlag,
    save: SaveFlag | None = None,
    *,
    leaves: bool = True,
    and_then: Callable[[str], object] = lambda _: None,
) -> Iterator[None]:
    """Within the block a first signal sets `stop` and calls `and_then` with the reason, and a
    second one leaves; with `leaves` false it changes nothing, because the process belongs to a
    command that decides.

    The handlers are installed whatever was inherited: a command that a script starts with `&`
    ignores SIGINT otherwise. SIGHUP counts as SIGTERM, but stays ignored where it was: with
    `nohup` a run survives the end of its session. SIGUSR1 sets `save` and interrupts nothing. The
    previous handlers come back.

    Solvers in C (OSQP, SCS) replace the handler of SIGINT while they solve and restore the one
    before; of two that overlap in threads, the second one restores the handler of the first. So
    checks of `stop` install the handler again now and then, and a first Ctrl-C that a solver takes
    comes from the monitor.
    """

    def handler(signum: int, frame: FrameType | None) -> None:  # noqa: ARG001 - Python's signature
        if not _signals.counts():
            return
        if len(_signals.times_s) == 1:
            reason = Interrupted(_counted(signum))
            stop.request(reason)
            _announce(f"{signal.Signals(signum).name}: saving{AGAIN if leaves else ''}")
            and_then(str(reason))
        elif leaves:
            if os.isatty(1):
                _say(SHOW_CURSOR, 1)
            _say("\nquit immediately without saving; earlier checkpoints, if any, are intact\n")
            leave(128 + _counted(signum))

    def ask(signum: int, frame: FrameType | None) -> None:  # noqa: ARG001 - Python's signature
        assert save is not None
        save.request()
        _announce("SIGUSR1: saving a checkpoint; the run continues", NOTICE_S)

    _signals.times_s.clear()
    installed_s = 0.0

    def take_over(signum: int, frame: FrameType | None) -> None:  # noqa: ARG001 - Python's own
        if not _signals.times_s:
            handler(signal.SIGINT, frame)

    def install_again() -> None:
        nonlocal installed_s
        is_main = threading.current_thread() is threading.main_thread()
        if is_main and time.monotonic() - installed_s >= INSTALL_S:
            installed_s = time.monotonic()
            signal.signal(signal.SIGINT, handler)

    with (
        _handling(STOPPING, handler),
        _handling([CTRL_C], take_over),
        _handling([SAVE] if save else [], ask),
    ):
        stop.listen = install_again
        try:
            yield
        finally:
            stop.listen = lambda: None


@contextmanager
def leaving_to_the_command() -> Iterator[None]:
    """In a worker of a command: signals between its jobs are the command's to answer."""
    with _handling(STOPPING, lambda *_: None):
        yield


@contextmanager
def saving_before_a_requeue(stop: StopFlag) -> Iterator[None]:
    """submitit requeues a job on SIGUSR2 and leaves in the middle of it. Within the block the
    signal only sets `stop`; submitit's own handler is called after it, when the job has saved."""
    before = signal.getsignal(REQUEUE)
    if not callable(before):
        yield
        return
    received: list[int] = []

    def handle(signum: int, frame: FrameType | None) -> None:  # noqa: ARG001 - Python's signature
        received.append(signum)
        stop.request(Interrupted(signum))

    with _handling([REQUEUE], handle):
        yield
    if received:
        before(REQUEUE, None)


def interrupt(thread_id: int | None) -> None:
    """A KeyboardInterrupt for the main thread, which hangs.

    A real signal, because nothing less ends a wait. Other threads cannot be interrupted.
    """
    if thread_id is not None and thread_id == threading.main_thread().ident:
        signal.pthread_kill(thread_id, signal.SIGINT)
    else:
        log.critical("a thread hangs and cannot be interrupted")


@contextmanager
def _handling(signums: Iterable[signal.Signals], handler: Handler) -> Iterator[None]:
    """Installs the handler, but not where `nohup` has SIGHUP ignored."""
    before = {
        signum: signal.signal(signum, handler)
        for signum in signums
        if signum != signal.SIGHUP or signal.getsignal(signum) != signal.SIG_IGN
    }
    try:
        yield
    finally:
        for signum, earlier in before.items():
            if earlier is not None:  # else it was not installed by Python, which cannot restore it
                signal.signal(signum, earlier)


def _counted(signum: int) -> int:
    return signal.SIGTERM if signum == signal.SIGHUP else signum


def _announce(message: str, seconds: float | None = None) -> None:
    """Shows a message below the live panel, for so long, or else on a line of its own.

    A newline would move the panel, which then leaves lines of itself behind when it is redrawn.
    """
    if not panel_line.live:
        _say(f"\n{message}\n")
        return
    panel_line.show(message, seconds)
    if panel_line.drawing:  # the next frame shows the message
        return
    with suppress(OSError):
        columns = os.get_terminal_size(1).columns
        _say(f"\r{CLEAR_LINE}{message[: columns - 1]}", 1)


def _say(text: str, descriptor: int = 2) -> None:
    """Straight to the terminal: a handler must not wait for a lock that its own thread holds."""
    try:
        os.write(descriptor, text.encode())
    except OSError:
        return
