"""How much memory this process and this machine have."""

from __future__ import annotations

import os
import resource
from pathlib import Path

STATM = Path("/proc/self/statm")  # pages: in all, resident, …


def resident_bytes(statm: Path = STATM) -> int:
    """Memory of this process that is in RAM now; where /proc is missing, the most it ever was."""
    try:
        pages = int(statm.read_text().split()[1])
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # bytes, on macOS
    return pages * os.sysconf("SC_PAGE_SIZE")


def machine_bytes() -> int:
    """RAM of this machine."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
