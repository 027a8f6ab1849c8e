"""Ctrl-C and its relatives: once to stop and save, twice to leave at once."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from border_cli.core.errors import Interrupted
from border_cli.core.stop import StopFlag

STOPPING = (
    signal.SIGINT,
    signal.SIGTERM,
    signal.SIGHUP,
)


SHOW_CURSOR = "\x1b[?25h"  # a live panel hides it


@contextmanager
def stopping_on_signals(stop: StopFlag, on_second: Callable[[int], None]) -> Iterator[None]:
    """Within the block a first signal sets the flag; a second calls `on_second` and leaves.

    The handlers are installed whatever was inherited: a command that a script starts with `&`
    ignores SIGINT otherwise. SIGHUP counts as SIGTERM. The handlers of before come back.
    """

    received: list[int] = []

    def handle(signum: int, frame: FrameType | None) -> None:  # noqa: ARG001 - Python's signature
        counted = signal.SIGTERM if signum == signal.SIGHUP else signum
        received.append(counted)
        if len(received) > 1:
            on_second(counted)
            if os.isatty(1):
                _say(SHOW_CURSOR, 1)
            _say("\nleft at once; the last checkpoint is as it was\n")
            os._exit(128 + counted)
        stop.request(Interrupted(counted))
        _say(f"\n{signal.Signals(signum).name}: stopping and saving; once more leaves at once\n")

    before = {signum: signal.signal(signum, handle) for signum in STOPPING}
    try:
        yield
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)


def _say(text: str, descriptor: int = 2) -> None:
    """Straight to the terminal: a handler must not wait for a lock that its own thread holds."""
    try:
        os.write(descriptor, text.encode())
    except OSError:
        return
