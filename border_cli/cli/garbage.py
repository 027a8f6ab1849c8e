"""Python's garbage collector, kept out of a command's start and of its end."""

from __future__ import annotations

import atexit
import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def not_collecting() -> Iterator[None]:
    """Nothing is collected within the block until `collect_from_here`; then it is as before.

    What a start imports lasts as long as the process. Going through it, over and over while it is
    imported and once more at the interpreter's end, takes a fifth of the shortest run and finds
    nothing. At the end only cycles stay unfreed: files, threads and atexit are as always.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    atexit.register(gc.freeze)
    try:
        yield
    finally:
        gc.unfreeze()
        if was_enabled:
            gc.enable()
        else:
            gc.disable()


def collect_from_here() -> None:
    """Everything is imported: collects from now on, and passes over what is there already."""
    gc.freeze()
    gc.enable()
