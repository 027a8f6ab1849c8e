"""Handles Ctrl-C and similar signals: the first one saves and stops, a second one quits
immediately. Signals within half a second of each other count as one.

Inside loops (a run, border-eval, border-record), a handler only sets a `StopFlag`, because Python
drops exceptions that a handler raises during a weak reference callback. Outside of loops, it raises
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
from border_cli.process.monitor import CTRL_C, SHOW_CURSOR, SignalCount, exit_immediately
from border_cli.recorder.panel_line import panel_line
from border_cli.system.forks import PARENT_SIGNALS

log = logging.getLogger(__name__)

*STOPPING, SAVE, REQUEUE = PARENT_SIGNALS

CLEAR_LINE = "\x1b[2K"
AGAIN = "; press Ctrl-C again to quit immediately"
INSTALL_S = 0.001  # minimum time between two installations of the handler, which take 3 us each
NOTICE_S = 5.0  # how long the panel shows a transient message

Handler = Callable[[int, FrameType | None], object]

# One count per process: if a run saves and ends between two signals, the second one reaches the
# handler that was installed before the run. `early_signals` and `stopping_on_signals` reset it.
_signals = SignalCount()


class EarlySignals:
    """Handles signals outside of jobs. Owned by the main thread, which runs the handlers."""

    def __init__(self) -> None:
        self.stop = StopFlag()
        self.signum: int = signal.SIGINT
        self._polled = False  # whether the command polls `stop`
        _signals.times_s.clear()

    @property
    def exit_status(self) -> int:
        return 128 + self.signum

    def leave(self, signum: int, frame: FrameType | None) -> None:  # noqa: ARG002 - Python's own
        """Requests a stop, and raises KeyboardInterrupt unless the flag is polled. A second signal
        exits immediately."""
        if not _signals.register():
            return
        self.signum = _map_hangup(signum)
        if self.stop.requested:
            exit_immediately(self.exit_status)
        self.stop.request(Interrupted(self.signum))
        if not self._polled:
            raise KeyboardInterrupt

    @contextmanager
    def polled(self) -> Iterator[StopFlag]:
        """Within the block, signals only set the flag, for loops that poll it.

        Python drops exceptions that a handler raises during a `__del__` or a weak reference
        callback. h5py has such a callback for every object, so 13 of 100 Ctrl-Cs to `border-record`
        were lost.
        """
        self._polled = True
        try:
            yield self.stop
        finally:
            self._polled = False


@contextmanager
def early_signals() -> Iterator[EarlySignals]:
    """Within the block, SIGINT, SIGTERM and SIGHUP raise KeyboardInterrupt. By default, SIGTERM
    would skip all `finally` clauses.

    The block spans the whole command, starting before the first slow import. SIGINT is handled even
    if it was ignored, as in a command that a script starts with `&`. An ignored SIGHUP stays
    ignored, as `nohup` intends. The previous handlers are restored. SIGUSR1, which kills by
    default, stays ignored after the block, so that a finished run does not appear to have been
    killed.
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
    """Within the block, a first signal sets `stop` and calls `and_then` with the reason, and a
    second one exits. If `leaves` is false, a second signal has no effect, because the command that
    owns the process decides.

    The handlers are installed regardless of what was inherited: otherwise a command that a script
    starts with `&` would ignore SIGINT. SIGHUP is treated as SIGTERM, but stays ignored if it was:
    with `nohup`, a run survives the end of its session. SIGUSR1 sets `save` and interrupts nothing.
    The previous handlers are restored.

    Solvers in C (OSQP, SCS) replace the handler of SIGINT while they solve, and restore the
    previous one. If two of them overlap in threads, the second one restores the handler of the
    first. Checks of `stop` therefore reinstall the handler from time to time, and the monitor
    forwards a first Ctrl-C that a solver intercepts.
    """

    def handler(signum: int, frame: FrameType | None) -> None:  # noqa: ARG001 - Python's signature
        if not _signals.register():
            return
        if len(_signals.times_s) == 1:
            reason = Interrupted(_map_hangup(signum))
            stop.request(reason)
            _announce(f"{signal.Signals(signum).name}: saving{AGAIN if leaves else ''}")
            and_then(str(reason))
        elif leaves:
            if os.isatty(1):
                _write(SHOW_CURSOR, 1)
            _write("\nquit immediately without saving; earlier checkpoints, if any, are intact\n")
            exit_immediately(128 + _map_hangup(signum))

    def request_save(signum: int, frame: FrameType | None) -> None:  # noqa: ARG001 - Python's signature
        assert save is not None
        save.request()
        _announce("SIGUSR1: saving a checkpoint; the run continues", NOTICE_S)

    _signals.times_s.clear()
    installed_s = 0.0

    def handle_forwarded(signum: int, frame: FrameType | None) -> None:  # noqa: ARG001 - Python's own
        if not _signals.times_s:
            handler(signal.SIGINT, frame)

    def reinstall() -> None:
        nonlocal installed_s
        is_main = threading.current_thread() is threading.main_thread()
        if is_main and time.monotonic() - installed_s >= INSTALL_S:
            installed_s = time.monotonic()
            signal.signal(signal.SIGINT, handler)

    with (
        _handling(STOPPING, handler),
        _handling([CTRL_C], handle_forwarded),
        _handling([SAVE] if save else [], request_save),
    ):
        stop.listen = reinstall
        try:
            yield
        finally:
            stop.listen = lambda: None


@contextmanager
def ignoring_signals() -> Iterator[None]:
    """Ignores signals in a worker between jobs, because the command handles them."""
    with _handling(STOPPING, lambda *_: None):
        yield


@contextmanager
def saving_before_a_requeue(stop: StopFlag) -> Iterator[None]:
    """Within the block, SIGUSR2 only sets `stop`, so that the job can save. submitit's own handler,
    which requeues the job and exits, is called after the block."""
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
    """Raises KeyboardInterrupt in the main thread, which hangs.

    Sends a real signal, because nothing else ends a blocking wait. Other threads cannot be
    interrupted.
    """
    if thread_id is not None and thread_id == threading.main_thread().ident:
        signal.pthread_kill(thread_id, signal.SIGINT)
    else:
        log.critical("a thread hangs and cannot be interrupted")


@contextmanager
def _handling(signums: Iterable[signal.Signals], handler: Handler) -> Iterator[None]:
    """Installs the handler within the block, except for a SIGHUP that `nohup` ignores."""
    before = {
        signum: signal.signal(signum, handler)
        for signum in signums
        if signum != signal.SIGHUP or signal.getsignal(signum) != signal.SIG_IGN
    }
    try:
        yield
    finally:
        for signum, previous in before.items():
            if previous is not None:  # None if C code installed it; Python cannot restore that
                signal.signal(signum, previous)


def _map_hangup(signum: int) -> int:
    return signal.SIGTERM if signum == signal.SIGHUP else signum


def _announce(message: str, seconds: float | None = None) -> None:
    """Shows a message below the live panel for `seconds` or indefinitely, or else on its own line.

    A newline would move the panel and leave remnants of it behind at the next redraw.
    """
    if not panel_line.live:
        _write(f"\n{message}\n")
        return
    panel_line.show(message, seconds)
    if panel_line.drawing:  # the next frame shows the message
        return
    with suppress(OSError):
        columns = os.get_terminal_size(1).columns
        _write(f"\r{CLEAR_LINE}{message[: columns - 1]}", 1)


def _write(text: str, descriptor: int = 2) -> None:
    """Writes directly to the terminal: a handler must not wait for a lock of its own thread."""
    try:
        os.write(descriptor, text.encode())
    except OSError:
        return
