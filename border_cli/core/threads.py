"""How many threads compute, and on how many cores."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, cast

# What numpy's and torch's libraries read as they are loaded.
BLAS_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
_FUNCTIONS = (
    "scipy_openblas_get_num_threads64_",  # of numpy's own wheels
    "openblas_get_num_threads64_",
    "openblas_get_num_threads",
    "MKL_Get_Max_Threads",
)


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


def blas_threads() -> int | None:
    """Threads that one call of numpy's BLAS may use, asked from the loaded library itself.

    The environment variables are no answer: they count only if set before numpy was loaded. None
    where the library is unknown, or has no such function.
    """
    found = _blas()
    return None if found is None else int(found())


@cache
def _blas() -> Callable[[], Any] | None:
    """The function of the loaded library that tells; cached, because the search takes 1 ms.

    The first call comes after numpy was imported.
    """
    for path in _loaded_blas(Path("/proc/self/maps")):
        try:
            library = ctypes.PyDLL(path)  # the one that is loaded, not another
        except OSError:  # its file was replaced since
            continue
        for name in _FUNCTIONS:
            if hasattr(library, name):
                return cast("Callable[[], Any]", getattr(library, name))
    return None


def _loaded_blas(maps: Path) -> list[str]:
    """The files of OpenBLAS and MKL in this process, numpy's own first."""
    try:
        lines = maps.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
    files = {line.split(maxsplit=5)[5] for line in lines if line.count("/")}
    names = {each for each in files if "openblas" in each or "mkl_rt" in each}
    return sorted(names, key=lambda each: ("numpy" not in each, each))
