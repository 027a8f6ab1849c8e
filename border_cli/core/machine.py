"""How much memory this machine has, and how much of it a process may still take.

Write access to a directory is tested by creating and removing an empty directory in its nearest
existing parent, which covers owners, ACLs, read-only and special file systems. psutil, for which no
refusal waits, is imported by the functions that ask it.
"""

from __future__ import annotations

import errno
import os
import re
import resource
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from border_cli.core.errors import FULL, BorderError, OutOfMemory, RunFailed
from border_cli.core.threads import machine_cores
from border_cli.core.words import size

CGROUPS = Path("/sys/fs/cgroup")  # version 2
OWN_CGROUP = Path("/proc/self/cgroup")

# In what torch raises where the allocator of a CPU or a GPU has nothing left, or C++ does not, and
# where a size is beyond all numbers.
_ALLOCATION_FAILED = (
    *("can't allocate memory", "annot allocate memory", "not enough memory", "out of memory"),
    *("bad_alloc", "bad allocation", "Storage size calculation overflowed"),
    "Overflow when unpacking long",
)


class Room(NamedTuple):
    """What is left below one limit."""

    limit: str  # what is limited, in words
    nbytes: int


def failed_allocation(error: BaseException) -> str | None:
    """What an error says of memory that could not be had; None where that is not what it is about.

    numpy and Python raise MemoryError, the kernel ENOMEM, and torch a RuntimeError, whose kind is
    in its text alone. What failed in another thread or process comes as the text of its traceback.
    """
    kind, text = type(error).__name__, str(error).strip()
    if isinstance(error, RunFailed):
        kind, _, text = text.rpartition("\n")[2].partition(": ")
    text = " ".join(text.split())
    failed = (
        isinstance(error, OSError) and error.errno == errno.ENOMEM,
        kind.endswith("MemoryError"),  # numpy's own is called _ArrayMemoryError
        kind.endswith(("RuntimeError", "AcceleratorError", "ImportError"))
        and any(each in text for each in _ALLOCATION_FAILED),
    )
    if not any(failed):
        return None
    nbytes = re.search(r"tried to allocate (\d+) bytes", text)
    return (
        f"{size(int(nbytes[1]))} could not be allocated" if nbytes else text or "no memory is left"
    )


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
    import psutil

    return int(psutil.Process().memory_info().rss)


def machine_bytes() -> int:
    """RAM of this machine."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def free_memory(cgroups: Path = CGROUPS, own_cgroup: Path = OWN_CGROUP) -> Room:
    """What processes may still take together: of the machine, and of each cgroup that this one is
    in."""
    import psutil

    free = Room("free memory of this machine", int(psutil.virtual_memory().available))
    rooms = [_room_of_group(each, cgroups) for each in _own_groups(cgroups, own_cgroup)]
    return min([free, *filter(None, rooms)], key=lambda each: each.nbytes)


def least_room() -> Room:
    """What this process may still take: less than what is free, where it has a limit of its own."""
    import psutil

    free, (most, _) = free_memory(), resource.getrlimit(resource.RLIMIT_AS)
    left = most - int(psutil.Process().memory_info().vms)
    if most == resource.RLIM_INFINITY or left > free.nbytes:
        return free
    return Room("address space, ulimit -v", max(0, left))


def _own_groups(cgroups: Path, own_cgroup: Path) -> Iterator[Path]:
    """The folders of this process's group and of all that it lies in."""
    try:
        lines = own_cgroup.read_text().splitlines()
    except OSError:
        return
    path = next((each.removeprefix("0::/") for each in lines if each.startswith("0::/")), None)
    if path is None:
        return
    folder = cgroups / path
    if ".." in folder.parts or not folder.is_dir():
        folder = cgroups  # in a container: its own group is mounted there, and no other is visible
    for each in (folder, *folder.parents):
        yield each
        if each == cgroups:
            return


def usable_cores(cgroups: Path = CGROUPS, own_cgroup: Path = OWN_CGROUP) -> int:
    """Cores that this process may keep busy: by its affinity and the quotas of its cgroups."""
    cores = float(machine_cores())
    for each in _own_groups(cgroups, own_cgroup):
        with suppress(OSError, ValueError):
            quota, period = (each / "cpu.max").read_text().split()
            if quota != "max":
                cores = min(cores, int(quota) / int(period))
    return max(1, int(cores))


def _room_of_group(folder: Path, cgroups: Path) -> Room | None:
    """What a cgroup leaves; None where it has no limit, which is `max`, or cannot be read."""
    with suppress(OSError, ValueError):
        most = int((folder / "memory.max").read_text())
        stat = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
        used = int((folder / "memory.current").read_text())
        # Cached files: the kernel gives them back when memory is needed.
        used -= sum(int(stat.get(each, 0)) for each in ("inactive_file", "active_file"))
        name = f"/{folder.relative_to(cgroups)}".rstrip(".")
        return Room(f"limit of the cgroup {name}", max(0, most - used))
    return None


def unwritable(folder: Path) -> str | None:
    """Why nothing can be written into a folder that is there or shall be made; None where it can.

    Tried, with an empty folder that goes again, because owners, lists, namespaces and file systems
    all have their say. A full disk is no reason: what is free is another question.
    """
    existing = next(each for each in (folder, *folder.parents) if os.path.lexists(each))
    probe = existing / f".{os.urandom(4).hex()}.tmp"
    try:
        probe.mkdir()
        probe.rmdir()
    except OSError as error:
        if error.errno not in FULL:
            return f"cannot create files in {existing.absolute()} ({error.strerror})"
    return None
