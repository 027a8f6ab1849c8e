"""Redirection of the output of this process and its children."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable


def forward_output(take: Callable[[str], object]) -> threading.Thread:
    """Starts a thread that calls `take` with every line written to stdout or stderr from now on.

    The thread ends once no process has the two streams open.
    """
    read_end, write_end = os.pipe()
    for stream in (1, 2):
        os.dup2(write_end, stream)
    os.close(write_end)

    def forward() -> None:
        with os.fdopen(read_end, errors="replace") as lines:
            for line in lines:
                take(line)

    thread = threading.Thread(target=forward, name="printed", daemon=True)
    thread.start()
    return thread
