"""Lines that this process prints, and the processes that it starts, taken before they are shown."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable


def take_printed(take: Callable[[str], object]) -> threading.Thread:
    """Has a thread call `take` with each line on stdout and stderr from now on; it ends once nobody
    has these open any more."""
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
