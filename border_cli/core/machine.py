"""How much memory and disk this machine has, and how much of it a process may still take.

Write access to a directory is tested by creating and removing an empty directory in its nearest
existing parent, which covers owners, ACLs, read-only and special file systems.
"""

from __future__ import annotations

import errno
import os
import re
import resource
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from border_cli.core.errors import BorderError, OutOfMemory, RunFailed
from border_cli.core.words import size

PROC = Path("/proc")
UNLIMITED = 2**60  # bytes; cgroups of version 1 say "no limit" by a number above

# In what torch raises where the allocator of a CPU or a GPU has nothing left, or C++ does not, and
# where a size is beyond all numbers.
_ALLOCATION_FAILED = (
    *("can't allocate memory", "annot allocate memory", "not enough memory", "out of memory"),
    *("bad_alloc", "bad allocation", "Storage size calculation overflowed"),
    "Overflow when unpacking long",
)
_ARENA_NBYTES = 64 * 2**20  # of address space, which malloc reserves for each thread
_ARENAS_PER_CORE = 8  # at most; later threads share them
_LONGEST_PATH_INSIDE = 200  # bytes, of the files in a run directory
_STACK_NBYTES = 2 * 2**20  # of a thread, where RLIMIT_STACK has no limit


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


def resident_bytes(proc: Path = PROC) -> int:
    """Memory of this process that is in RAM now; where /proc is missing, the most it ever was."""
    pages = _statm(proc)
    if pages is None:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # bytes, on macOS
    return pages[1] * os.sysconf("SC_PAGE_SIZE")


def machine_bytes() -> int:
    """RAM of this machine."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def memory_rooms(proc: Path = PROC) -> list[Room]:
    """What all processes that count together may still take: of the machine, of each cgroup."""
    free = _kilobytes(proc / "meminfo", "MemAvailable")
    if free is None:
        return [Room("memory of this machine", machine_bytes() - resident_bytes(proc))]
    return [Room("free memory of this machine", free), *_cgroup_rooms(proc)]


def address_rooms(proc: Path = PROC) -> list[Room]:
    """What this process alone may still reserve, used or not; nothing where there is no limit."""
    pages, writable = _statm(proc), _kilobytes(proc / "self/status", "VmData")
    used = pages[0] * os.sysconf("SC_PAGE_SIZE") if pages else None
    limits = (
        ("address space, ulimit -v", resource.RLIMIT_AS, used),
        ("data segment, ulimit -d", resource.RLIMIT_DATA, writable),
    )
    rooms = []
    for limit, which, taken in limits:
        most, _ = resource.getrlimit(which)
        if most != resource.RLIM_INFINITY and taken is not None:
            rooms.append(Room(limit, max(0, most - taken)))
    return rooms


def least_room() -> Room:
    """The smallest of all rooms: what this process may still take at most."""
    return min([*memory_rooms(), *address_rooms()], key=lambda each: each.nbytes)


def thread_nbytes(threads: int, cores: int) -> int:
    """Address space that so many more threads reserve: their stacks, and malloc's arenas."""
    stack, _ = resource.getrlimit(resource.RLIMIT_STACK)
    if stack == resource.RLIM_INFINITY:
        stack = _STACK_NBYTES
    return threads * stack + min(threads, _ARENAS_PER_CORE * cores) * _ARENA_NBYTES


def free_disk(folder: Path) -> Room:
    """What the file system takes on which `folder` is, or would be made."""
    existing = next(each for each in (folder, *folder.parents) if each.is_dir())
    return Room(f"free disk below {existing}", shutil.disk_usage(existing).free)


def unwritable(folder: Path) -> str | None:
    """Why nothing can be written into a folder that is there or shall be made; None where it can.

    Tried, with an empty folder that goes again, because owners, lists, namespaces and file systems
    all have their say. A full disk is no reason: what is free is another question.
    """
    try:
        existing = _nearest(folder)
        if not existing.is_dir():
            return f"{existing} is a file"
        longest = os.pathconf(existing, "PC_NAME_MAX")
        most = os.pathconf(existing, "PC_PATH_MAX") - _LONGEST_PATH_INSIDE
        for name in folder.parts:
            if len(os.fsencode(name)) > longest:
                return f"a name in it is longer than {longest} bytes"
        if len(os.fsencode(folder.absolute())) > most:
            return f"it is longer than {most} bytes"
    except OSError as error:
        return f"{error.filename}: {error.strerror}"
    probe = existing / f".{os.urandom(4).hex()}.tmp"
    try:
        probe.mkdir()
        probe.rmdir()
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            return f"cannot create files in {existing.absolute()} ({error.strerror})"
    return None


def _nearest(folder: Path) -> Path:
    """The folder, or the next above it that is there; raises OSError for a link that leads
    nowhere."""
    for each in (folder, *folder.parents):
        try:
            each.stat()
            return each
        except OSError as error:
            # One above it cannot be entered, or it is too long: what is above will say so.
            if error.errno in (errno.EACCES, errno.ENAMETOOLONG):
                continue
            if error.errno not in (errno.ENOENT, errno.ENOTDIR):
                raise
            if each.is_symlink():
                raise OSError(errno.ENOENT, "is a broken link", str(each)) from None
    raise AssertionError("there is no root folder")


def _statm(proc: Path) -> list[int] | None:
    """Pages of this process: in all, resident, …"""
    try:
        return [int(each) for each in (proc / "self/statm").read_text().split()]
    except (OSError, ValueError):
        return None


def _kilobytes(path: Path, key: str) -> int | None:
    """The bytes of a line such as `MemAvailable:  1234 kB`."""
    with suppress(OSError, ValueError, IndexError):
        for line in path.read_text().splitlines():
            if line.startswith(f"{key}:"):
                return int(line.split()[1]) * 1024
    return None


class _Files(NamedTuple):
    """How one version of cgroups names what it knows of memory."""

    limits: tuple[str, ...]
    usage: str
    cached: tuple[str, ...]  # of memory.stat: what the kernel gives back when it is needed


_VERSION_1 = _Files(
    ("memory.limit_in_bytes",),
    "memory.usage_in_bytes",
    ("total_inactive_file", "total_active_file"),
)
_VERSION_2 = _Files(
    ("memory.max", "memory.high"), "memory.current", ("inactive_file", "active_file")
)


def _cgroup_rooms(proc: Path) -> list[Room]:
    """Of this process's groups and of all that they lie in; none where there is no limit."""
    rooms = []
    for mount, folder, files in _groups(proc):
        for each in (folder, *folder.parents):
            rooms += _rooms_of_group(each, files, f"/{each.relative_to(mount)}".rstrip("."))
            if each == mount:
                break
    return rooms


def _groups(proc: Path) -> Iterator[tuple[Path, Path, _Files]]:
    """Where the memory of this process is counted: mount point, folder of the group, its files."""
    try:
        mounts = (proc / "self/mountinfo").read_text().splitlines()
        memberships = (proc / "self/cgroup").read_text().splitlines()
    except OSError:
        return
    paths = {names: path for _, names, path in (line.split(":", 2) for line in memberships)}
    for line in mounts:
        before, _, after = line.partition(" - ")
        root, mount = before.split()[3:5]
        kind, options = after.split(" ")[0], after.split(" ")[-1]  # the source between may be empty
        if kind == "cgroup2" and "" in paths:
            yield *_place(mount, root, paths[""]), _VERSION_2
        elif kind == "cgroup" and "memory" in options.split(","):
            names = next((each for each in paths if "memory" in each.split(",")), None)
            if names is not None:
                yield *_place(mount, root, paths[names]), _VERSION_1


def _place(mount: str, root: str, path: str) -> tuple[Path, Path]:
    """The mount point and the group's folder in it; inside a container, whose own group is mounted,
    the path may lie outside: then the mount point is all there is to see."""
    top = Path(mount.replace("\\040", " "))
    inside = Path(path)
    if ".." in inside.parts or not inside.is_relative_to(root):
        return top, top
    return top, top / inside.relative_to(root)


def _rooms_of_group(folder: Path, files: _Files, name: str) -> list[Room]:
    with suppress(OSError, ValueError):
        limits = [_limit(folder / each) for each in files.limits if (folder / each).exists()]
        most = min((each for each in limits if each is not None), default=None)
        if most is None:
            return []
        stat = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
        used = int((folder / files.usage).read_text())
        used -= sum(int(stat.get(each, 0)) for each in files.cached)
        return [Room(f"limit of the cgroup {name}", max(0, most - used))]
    return []


def _limit(file: Path) -> int | None:
    text = file.read_text().strip()
    return None if text == "max" or int(text) >= UNLIMITED else int(text)
