"""Memory and cores available to a process, and the messages when memory runs out."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from border_cli.errors import BorderError, OutOfMemory, RunFailed

CGROUPS = Path("/sys/fs/cgroup")  # cgroup v2
OWN_CGROUP = Path("/proc/self/cgroup")

# Environment variables that numpy's and torch's libraries read at load time; the first one wins.
BLAS_VARIABLES = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS")

_at_once = 1  # jobs that share the cores
_most: int | None = None  # cores granted by a scheduler

# Parts of messages of numpy, Python, the kernel, torch and C++ about a failed allocation. The last
# two are from torch, for sizes that overflow its integers.
_ALLOCATION_FAILED = (
    *("MemoryError", "annot allocate memory", "can't allocate memory", "not enough memory"),
    *("out of memory", "bad_alloc", "bad allocation", "Unable to allocate"),
    *("Storage size calculation overflowed", "Overflow when unpacking long"),
)


def failed_allocation(error: BaseException) -> str | None:
    """Returns the message of an error on one line if an allocation failed; None for other errors.

    A RuntimeError of torch is recognised only by its text. Errors of other threads and processes
    arrive as a traceback whose last line is the error.
    """
    if not isinstance(error, MemoryError | RuntimeError | OSError | ImportError | RunFailed):
        return None
    text = str(error).strip()
    if isinstance(error, RunFailed):
        text = text.rpartition("\n")[2]
    if isinstance(error, MemoryError) or any(phrase in text for phrase in _ALLOCATION_FAILED):
        return " ".join(text.split()) or "no memory is left"
    return None


def out_of_memory(
    error: BaseException,
    what: str,
    settings: Mapping[str, object],
    kind: type[BorderError] = OutOfMemory,
) -> BorderError | None:
    """Returns the failure to report after a failed allocation, None for other errors. `what`
    describes the use of the memory. Smaller values of `settings` reduce it."""
    line = failed_allocation(error)
    if line is None:
        return None
    listed = ", ".join(f"{name}={value}" for name, value in settings.items())
    hint = f". Settings that use memory: {listed}" if listed else ""
    return kind(f"{what}: {line}{hint}")


@contextmanager
def memory_for(
    what: str, settings: Mapping[str, object], kind: type[BorderError] = OutOfMemory
) -> Iterator[None]:
    """Within the block, replaces errors about failed allocations, see `out_of_memory`."""
    try:
        yield
    except Exception as error:
        failure = out_of_memory(error, what, settings, kind)
        if failure is None:
            raise
        raise failure from error


def resident_bytes() -> int:
    """Returns the resident memory of this process."""
    # imported late, as below: not needed if settings are refused
    import psutil

    return int(psutil.Process().memory_info().rss)


def machine_bytes() -> int:
    """Returns the size of the machine's RAM."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def free_memory(cgroups: Path = CGROUPS, own_cgroup: Path = OWN_CGROUP) -> int:
    """Returns the bytes that processes can still allocate in total, limited by the machine and by
    the cgroups of this process."""
    import psutil

    free = [int(psutil.virtual_memory().available)]
    for group in _own_groups(cgroups, own_cgroup):
        with suppress(OSError, ValueError):  # the limit is `max` if there is none
            limit = int((group / "memory.max").read_text())
            stat = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
            used = int((group / "memory.current").read_text())
            # The kernel frees cached files when memory is needed.
            used -= sum(int(stat.get(name, 0)) for name in ("inactive_file", "active_file"))
            free.append(max(0, limit - used))
    return min(free)


def usable_cores(cgroups: Path = CGROUPS, own_cgroup: Path = OWN_CGROUP) -> int:
    """Returns the number of usable cores, limited by the affinity and the cgroup quotas."""
    cores = float(machine_cores())
    for group in _own_groups(cgroups, own_cgroup):
        with suppress(OSError, ValueError):
            quota, period = map(int, (group / "cpu.max").read_text().split())
            cores = min(cores, quota / period)
    return max(1, int(cores))


def _own_groups(cgroups: Path, own_cgroup: Path) -> list[Path]:
    """Returns the folders of this process's cgroup and its parents. In a container the group is the
    mount point, and no other group is visible."""
    with suppress(OSError):
        for line in own_cgroup.read_text().splitlines():
            if line.startswith("0::/"):
                folder = cgroups / line.removeprefix("0::/")
                return [path for path in (folder, *folder.parents) if path.is_relative_to(cgroups)]
    return []


def unwritable(folder: Path) -> str | None:
    """Returns why nothing can be written into an existing or future folder; None if it is writable.

    A full disk is not a reason. Free space is checked elsewhere.
    """
    existing = next(path for path in (folder, *folder.parents) if os.path.lexists(path))
    if existing.is_dir() and os.access(existing, os.W_OK | os.X_OK):
        return None
    reason = "Permission denied" if existing.is_dir() else "Not a directory"
    return f"cannot create files in {existing.absolute()} ({reason})"


def share_cores(at_once: int, most: int | None = None) -> None:
    """Limits the cores of this process: `at_once` processes share the machine, or a scheduler has
    granted `most` cores."""
    global _at_once, _most
    _at_once, _most = max(1, at_once), most


def available_cores() -> int:
    """Returns the number of cores for this process, or its share in a sweep."""
    share = max(1, machine_cores() // _at_once)
    return share if _most is None else max(1, min(share, _most))


def machine_cores() -> int:
    """Returns the number of cores that the system allows this process."""
    if sys.platform == "linux":
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
