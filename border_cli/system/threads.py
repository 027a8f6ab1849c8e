"""How many threads compute, and on how many cores."""

from __future__ import annotations

import os
import sys

# What numpy's and torch's libraries read as they are loaded; the first counts.
BLAS_VARIABLES = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS")

_at_once = 1  # jobs that share the cores
_most: int | None = None  # cores that a scheduler has granted


def share_cores(at_once: int, most: int | None = None) -> None:
    """From now on this process leaves room for others: `at_once` of them do the same, or it has
    been granted `most` cores."""
    global _at_once, _most
    _at_once, _most = max(1, at_once), most


def available_cores() -> int:
    """Cores that this process may use; its share where several jobs of a sweep run at once."""
    share = max(1, machine_cores() // _at_once)
    return share if _most is None else max(1, min(share, _most))


def machine_cores() -> int:
    """Cores that the system lets this process have."""
    if sys.platform == "linux":
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
