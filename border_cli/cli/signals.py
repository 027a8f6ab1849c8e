"""Ctrl-C and its relatives: once to stop and save, twice to leave at once."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import FrameType

from border_cli.core.errors import Interrupted
from border_cli.core.stop import SaveFlag, StopFlag

# By name, because some systems lack the last two.
INTERRUPT, TERMINATE, HANG_UP, SAVE = (
    getattr(signal, name, None) for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGUSR1")
)
STOPPING = [each for each in (INTERRUPT, TERMINATE, HANG_UP) if each is not None]

SHOW_CURSOR = "\x1b[?25h"  # a live panel hides it

Handler = Callable[[int, FrameType | None], object]


class EarlySignals:
    """What signals do while no job listens. Owned by the main thread, which runs the handlers."""

    def __init__(self) -> None:
        self.save = SaveFlag()  # asked for before there was a job, which takes the wish over
        self.exit_status = 128 + signal.SIGINT
        self._stopping = False

    def stop(self, signum: int, frame: FrameType | None) -> None:  # noqa: ARG002 - Python's own
        """Leaves by way of all `finally`s; the second time at once."""
        self.exit_status = 128 + _counted(signum)
        if self._stopping:
            os._exit(self.exit_status)
        self._stopping = True
        raise KeyboardInterrupt

    def remember(self, signum: int, frame: FrameType | None) -> None:  # noqa: ARG002 - as above
        """Keeps the wish for the job."""
        self.save.request()
        _say("\nSIGUSR1: the run has not begun; its first checkpoint will come early\n")


@contextmanager
def leaving_on_signals() -> Iterator[EarlySignals]:
    """Within the block, SIGINT, SIGTERM and SIGHUP raise KeyboardInterrupt: SIGTERM otherwise runs
    no `finally`.

    SIGINT is heard even where it was ignored, as it is by a command that a script starts with `&`;
    SIGHUP is not, because that is what `nohup` asks for. The handlers of before come back.
    """
    early = EarlySignals()
    with _handling(STOPPING, early.stop):
        yield early


@contextmanager
def early_signals() -> Iterator[EarlySignals]:
    """Leaves on signals where no job listens, and remembers SIGUSR1, which otherwise kills.

    For the whole command, from before the first slow import. SIGUSR1 stays ignored after the block:
    a run that has ended shall not look killed.
    """
    if SAVE is not None and signal.getsignal(SAVE) == signal.SIG_DFL:
        signal.signal(SAVE, signal.SIG_IGN)  # what comes back after the block
    with leaving_on_signals() as early, _handling([SAVE], early.remember):
        yield early


@contextmanager
def stopping_on_signals(
    stop: StopFlag, on_second: Callable[[int], None], save: SaveFlag
) -> Iterator[None]:
    """Within the block a first signal sets `stop`; a second calls `on_second` and leaves.

    The handlers are installed whatever was inherited: a command that a script starts with `&`
    ignores SIGINT otherwise. SIGHUP counts as SIGTERM, but stays ignored where it was: with
    `nohup` a run survives the end of its session. SIGUSR1 sets `save` and interrupts nothing, also
    one that came before the block. The handlers of before come back.
    """
    received: list[int] = []

    def handle(signum: int, frame: FrameType | None) -> None:  # noqa: ARG001 - Python's signature
        counted = _counted(signum)
        received.append(counted)
        if len(received) > 1:
            on_second(counted)
            if os.isatty(1):
                _say(SHOW_CURSOR, 1)
            _say("\nleft at once; the last checkpoint is as it was\n")
            os._exit(128 + counted)
        stop.request(Interrupted(counted))
        _say(f"\n{signal.Signals(signum).name}: stopping and saving; once more leaves at once\n")

    def ask(signum: int, frame: FrameType | None) -> None:  # noqa: ARG001 - Python's signature
        save.request()
        _say("\nSIGUSR1: saving a checkpoint; the run goes on\n")

    with _handling(STOPPING, handle), _handling([SAVE], ask) as before:
        _take_over(before, save)
        yield


@contextmanager
def _handling(
    signums: Iterable[signal.Signals | None], handler: Handler
) -> Iterator[dict[signal.Signals, object]]:
    """Installs the handler for the signals that this system has; gives those of before."""
    before = {
        signum: signal.signal(signum, handler)
        for signum in signums
        if signum is not None
        and not (signum == HANG_UP and signal.getsignal(signum) == signal.SIG_IGN)
    }
    try:
        yield dict(before)
    finally:
        for signum, earlier in before.items():
            if earlier is not None:  # else it was not installed by Python, which cannot restore it
                signal.signal(signum, earlier)


def _take_over(before: dict[signal.Signals, object], save: SaveFlag) -> None:
    """A wish that came before anyone could fulfil it."""
    for handler in before.values():
        early = getattr(handler, "__self__", None)
        if isinstance(early, EarlySignals) and early.save.requested:
            early.save.clear()
            save.request()


def _counted(signum: int) -> int:
    return signal.SIGTERM if signum == HANG_UP else signum


def _say(text: str, descriptor: int = 2) -> None:
    """Straight to the terminal: a handler must not wait for a lock that its own thread holds."""
    try:
        os.write(descriptor, text.encode())
    except OSError:
        return
