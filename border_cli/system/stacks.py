"""How one process reads the stacks of another, also of one whose interpreter is stuck."""

from __future__ import annotations

import faulthandler
import os
import time
from contextlib import suppress

ASK_S = 0.5  # within which a process that runs at all has written its stacks


def show_stacks_on(signum: int, file: int) -> None:
    """From now on the signal makes this process write the stacks of all its threads to `file`.

    The handler is C and needs no interpreter lock: a call that never returns is shown, too.
    """
    faulthandler.register(signum, file=file, all_threads=True)


def ask_for_stacks(pid: int, signum: int, file: int) -> str:
    """The stacks of a process that has called `show_stacks_on` with the same signal and file."""
    with suppress(ProcessLookupError):
        os.kill(pid, signum)
    time.sleep(ASK_S)
    return read_stacks(file)


def read_stacks(file: int) -> str:
    """All stacks that have been written there."""
    return os.pread(file, os.fstat(file).st_size, 0).decode(errors="replace")
