"""Memory and cores that a process may still take, and the messages when memory is out."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from border_cli.errors import BorderError, OutOfMemory, RunFailed

CGROUPS = Path("/sys/fs/cgroup")  # version 2
OWN_CGROUP = Path("/proc/self/cgroup")

# What numpy's and torch's libraries read as they are loaded; the first counts.
BLAS_VARIABLES = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS")

_at_once = 1  # jobs that share the cores
_most: int | None = None  # cores that a scheduler has granted

# What numpy, Python, the kernel, torch and C++ say where nothing is left, and torch where a size is
# beyond all numbers.
_ALLOCATION_FAILED = (
    *("MemoryError", "annot allocate memory", "can't allocate memory", "not enough memory"),
    *("out of memory", "bad_alloc", "bad allocation", "Unable to allocate"),
    *("Storage size calculation overflowed", "Overflow when unpacking long"),
)


def failed_allocation(error: BaseException) -> str | None:
    """The line of an error about memory that could not be had; None where it is another error.

    Only its text tells the RuntimeError of torch apart. What failed in another thread or process
    comes as the text of its traceback, whose last line is the error.
    """
    if not isinstance(error, MemoryError | RuntimeError | OSError | ImportError | RunFailed):
        return None
    text = str(error).strip()
    if isinstance(error, RunFailed):
        text = text.rpartition("\n")[2]
    if isinstance(error, MemoryError) or any(each in text for each in _ALLOCATION_FAILED):
        return " ".join(text.split()) or "no memory is left"
    return None


def out_of_memory(
    error: BaseException,
    what: str,
    settings: Mapping[str, object],
    kind: type[BorderError] = OutOfMemory,
) -> BorderError | None:
    """The failure to report where an allocation failed, else None; `what` was wanted, and with
    smaller `settings` it takes less."""
    said = failed_allocation(error)
    if said is None:
        return None
    listed = ", ".join(f"{name}={value}" for name, value in settings.items())
    smaller = f". Settings that use memory: {listed}" if listed else ""
    return kind(f"{what}: {said}{smaller}")


@contextmanager
def memory_for(
    what: str, settings: Mapping[str, object], kind: type[BorderError] = OutOfMemory
) -> Iterator[None]:
    """Raises such a failure in place of what fails within the block."""
    try:
        yield
    except Exception as error:
        failed = out_of_memory(error, what, settings, kind)
        if failed is None:
            raise
        raise failed from error


def resident_bytes() -> int:
    """Memory of this process that is in RAM now."""
    # imported late, as below: a refusal does not need it
    import psutil

    return int(psutil.Process().memory_info().rss)


def machine_bytes() -> int:
    """RAM of this machine."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def free_memory(cgroups: Path = CGROUPS, own_cgroup: Path = OWN_CGROUP) -> int:
    """Bytes that processes may still take together: of the machine, and of each cgroup that this
    one is in."""
    import psutil

    free = [int(psutil.virtual_memory().available)]
    for each in _own_groups(cgroups, own_cgroup):
        with suppress(OSError, ValueError):  # without a limit, which is `max`
            most = int((each / "memory.max").read_text())
            stat = dict(line.split() for line in (each / "memory.stat").read_text().splitlines())
            used = int((each / "memory.current").read_text())
            # Cached files: the kernel gives them back when memory is needed.
            used -= sum(int(stat.get(name, 0)) for name in ("inactive_file", "active_file"))
            free.append(max(0, most - used))
    return min(free)


def usable_cores(cgroups: Path = CGROUPS, own_cgroup: Path = OWN_CGROUP) -> int:
    """Cores that this process may keep busy: by its affinity and the quotas of its cgroups."""
    cores = float(machine_cores())
    for each in _own_groups(cgroups, own_cgroup):
        with suppress(OSError, ValueError):
            quota, period = map(int, (each / "cpu.max").read_text().split())
            cores = min(cores, quota / period)
    return max(1, int(cores))


def _own_groups(cgroups: Path, own_cgroup: Path) -> list[Path]:
    """The folders of this process's group and of all that it lies in; in a container its own group
    is the mount point, and no other is visible."""
    with suppress(OSError):
        for line in own_cgroup.read_text().splitlines():
            if line.startswith("0::/"):
                folder = cgroups / line.removeprefix("0::/")
                return [each for each in (folder, *folder.parents) if each.is_relative_to(cgroups)]
    return []


def unwritable(folder: Path) -> str | None:
    """Why nothing can be written into a folder that is there or shall be made; None where it can.

    A full disk is no reason: what is free is another question.
    """
    existing = next(each for each in (folder, *folder.parents) if os.path.lexists(each))
    if existing.is_dir() and os.access(existing, os.W_OK | os.X_OK):
        return None
    reason = "Permission denied" if existing.is_dir() else "Not a directory"
    return f"cannot create files in {existing.absolute()} ({reason})"


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
