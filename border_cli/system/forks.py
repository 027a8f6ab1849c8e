"""Removal of signal handlers in processes that an environment forks.

A helper process with the handler of the run, which only requests a stop, would ignore SIGTERM.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from types import FrameType

# Signals that only the training process handles, even if its whole process group receives them.
PARENT_SIGNALS = (
    signal.SIGINT,
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGUSR1,
    signal.SIGUSR2,
)
# Makes a process write the stacks of its threads. It must be a signal that nothing else sends
# (SIGRTMIN + 10, SIGINFO): reading stacks without the interpreter lock may crash a process that is
# not stuck.
STACK_SIGNAL = 44 if sys.platform == "linux" else 29


def do_nothing(signum: int, frame: FrameType | None) -> None:
    """A signal handler for processes whose parent decides when they end. Unlike SIG_IGN it is reset
    by `exec`, so that programs started by an environment can be terminated."""


class _Forking(threading.local):
    """Blocks the signals while a thread forks, so that none reaches a handler about to be
    removed."""

    mask: set[int]

    def block(self) -> None:
        self.mask = signal.pthread_sigmask(signal.SIG_BLOCK, PARENT_SIGNALS)

    def restore(self) -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, self.mask)

    def drop_handlers(self) -> None:
        for signum in PARENT_SIGNALS:
            handler = signal.getsignal(signum)
            if str(getattr(handler, "__module__", "")).startswith("border_cli."):
                default = signal.default_int_handler if signum == signal.SIGINT else signal.SIG_DFL
                signal.signal(signum, default)
        self.restore()


_forking = _Forking()
os.register_at_fork(
    before=_forking.block,
    after_in_parent=_forking.restore,
    after_in_child=_forking.drop_handlers,
)
