"""What a machine has left: read from its own files, from written ones, and under real limits."""

from __future__ import annotations

import errno
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from border_cli.core.errors import ActorCrashed, ConfigError, OutOfMemory, RunFailed
from border_cli.core.machine import (
    Room,
    address_rooms,
    failed_allocation,
    free_disk,
    machine_bytes,
    memory_for,
    memory_rooms,
    resident_bytes,
    thread_nbytes,
    unwritable,
)

MIB = 2**20
NO_LIMIT = "9223372036854771712"  # how cgroups of version 1 say so


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    """A /proc of 3 GiB free memory, without groups."""
    folder = tmp_path / "proc"
    (folder / "self").mkdir(parents=True)
    (folder / "meminfo").write_text("MemTotal:  8388608 kB\nMemAvailable:  3145728 kB\n")
    (folder / "self/statm").write_text("1000 25 3 1 0 2 0\n")
    (folder / "self/status").write_text("VmPeak:  9 kB\nVmData:  2048 kB\n")
    return folder


def group(folder: Path, *, limit: str, usage: int, inactive: int = 0, version: int = 2) -> None:
    """Writes the files of one cgroup; `inactive` bytes of its usage are cached files."""
    folder.mkdir(parents=True, exist_ok=True)
    names = ("memory.max", "memory.current", "inactive_file")
    if version == 1:
        names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
    (folder / names[0]).write_text(f"{limit}\n")
    (folder / names[1]).write_text(f"{usage}\n")
    (folder / "memory.stat").write_text(f"anon 5\n{names[2]} {inactive}\n")


def mounted(proc: Path, mount: Path, path: str, *, version: int = 2, root: str = "/") -> None:
    kind, names = ("cgroup2", "") if version == 2 else ("cgroup", "memory")
    (proc / "self/mountinfo").write_text(
        "22 1 0:21 / /proc rw - proc  rw\n"  # its source is empty
        f"35 32 0:29 {root} {mount} rw,relatime shared:1 - {kind} cgroup rw,{names}\n"
    )
    (proc / "self/cgroup").write_text(f"9:name=systemd:/\n4:{names}:{path}\n1:cpu:/elsewhere\n")


def test_memory_is_between_an_interpreter_and_the_machine(proc: Path) -> None:
    assert 5_000_000 < resident_bytes() < machine_bytes()
    assert resident_bytes(proc) == 25 * os.sysconf("SC_PAGE_SIZE")
    assert resident_bytes(proc / "missing") > 0


def test_without_groups_the_free_memory_of_the_machine_counts(proc: Path) -> None:
    assert memory_rooms(proc) == [Room("free memory of this machine", 3072 * MIB)]


def test_where_proc_is_missing_the_memory_of_the_machine_counts(tmp_path: Path) -> None:
    (room,) = memory_rooms(tmp_path)
    assert 0 < room.nbytes < machine_bytes()
    assert address_rooms(tmp_path) == []


@pytest.mark.parametrize("version", [1, 2])
def test_every_group_above_counts_and_cached_files_do_not(
    proc: Path, tmp_path: Path, version: int
) -> None:
    mount, none = tmp_path / "groups", NO_LIMIT if version == 1 else "max"
    group(mount / "a", limit=str(900 * MIB), usage=500 * MIB, inactive=100 * MIB, version=version)
    group(mount / "a/b", limit=none, usage=300 * MIB, version=version)
    group(mount / "a/b/c", limit=str(800 * MIB), usage=200 * MIB, version=version)
    mounted(proc, mount, "/a/b/c", version=version)
    assert memory_rooms(proc)[1:] == [
        Room("limit of the cgroup /a/b/c", 600 * MIB),
        Room("limit of the cgroup /a", 500 * MIB),
    ]


def test_a_group_that_is_throttled_counts_as_limited(proc: Path, tmp_path: Path) -> None:
    group(tmp_path / "groups/a", limit="max", usage=100 * MIB)
    (tmp_path / "groups/a/memory.high").write_text(f"{300 * MIB}\n")
    mounted(proc, tmp_path / "groups", "/a")
    assert memory_rooms(proc)[1].nbytes == 200 * MIB


@pytest.mark.parametrize(
    ("root", "path"),
    [("/docker/5f", "/docker/5f"), ("/", "/not/visible/here"), ("/", "/../..")],
)
def test_in_a_container_the_group_is_the_mount_point(
    proc: Path, tmp_path: Path, root: str, path: str
) -> None:
    group(tmp_path / "groups", limit=str(800 * MIB), usage=200 * MIB)
    mounted(proc, tmp_path / "groups", path, root=root)
    assert memory_rooms(proc)[1:] == [Room("limit of the cgroup /", 600 * MIB)]


def test_a_group_over_its_limit_has_no_room(proc: Path, tmp_path: Path) -> None:
    group(tmp_path / "groups/a", limit=str(MIB), usage=2 * MIB)
    mounted(proc, tmp_path / "groups", "/a")
    assert memory_rooms(proc)[1].nbytes == 0


@pytest.mark.parametrize("content", ["", "nonsense\n", "12 x\n"])
def test_files_that_cannot_be_read_limit_nothing(proc: Path, tmp_path: Path, content: str) -> None:
    group(tmp_path / "groups/a", limit=str(MIB), usage=0)
    (tmp_path / "groups/a/memory.current").write_text(content)
    mounted(proc, tmp_path / "groups", "/a")
    assert len(memory_rooms(proc)) == 1


@pytest.mark.skipif(sys.platform != "linux", reason="the system does not tell what is taken")
def test_what_a_process_may_still_reserve_is_its_limit_less_what_it_has() -> None:
    code = (
        "import resource; from border_cli.core.machine import address_rooms;"
        "resource.setrlimit(resource.RLIMIT_AS, (4 * 2**30, -1));"
        "resource.setrlimit(resource.RLIMIT_DATA, (3 * 2**30, -1));"
        "print(*(room.nbytes for room in address_rooms()));"
        "held = bytearray(2**29);"
        "print(*(room.nbytes for room in address_rooms()))"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    before, after = (list(map(int, line.split())) for line in said.stdout.splitlines())
    assert 3 * 2**30 < before[0] < 4 * 2**30
    assert 2.5 * 2**30 < before[1] < 3 * 2**30
    assert [old - new for old, new in zip(before, after, strict=True)] == pytest.approx(
        [2**29, 2**29], abs=2 * MIB
    )


def test_threads_reserve_their_stacks_and_arenas() -> None:
    stack, _ = resource.getrlimit(resource.RLIMIT_STACK)
    stack = 2 * MIB if stack == resource.RLIM_INFINITY else stack
    assert thread_nbytes(3, cores=2) == 3 * stack + 3 * 64 * MIB
    assert thread_nbytes(20, cores=2) == 20 * stack + 16 * 64 * MIB  # 8 arenas per core


def test_the_disk_is_that_of_the_nearest_folder_that_exists(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for folder in (tmp_path / "run/of/mine", tmp_path / "file"):
        room = free_disk(folder)
        assert room.limit == f"free disk below {tmp_path}"
        assert room.nbytes > 0


TORCH = "[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory: "
TRACEBACK = "Traceback (most recent call last):\n  …\n"


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (MemoryError(), "no memory is left"),
        (MemoryError("Unable to allocate 8 EiB"), "Unable to allocate 8 EiB"),
        (MemoryError("std::bad_alloc"), "std::bad_alloc"),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), "[Errno 12] Cannot allocate memory"),
        (
            RuntimeError(f"{TORCH}you tried to allocate 4000000000 bytes. Error code 12"),
            "3.73 GiB could not be allocated",
        ),
        (RuntimeError("CUDA out of memory. Tried to"), "CUDA out of memory. Tried to"),
        (ActorCrashed(0, 3, f"{TRACEBACK}MemoryError: too\n"), "too"),
        (
            RunFailed(f"the evaluation failed:\n{TRACEBACK}numpy.X._ArrayMemoryError: 1 TiB"),
            "1 TiB",
        ),
        (RuntimeError("the simulator exploded"), None),
        (ActorCrashed(0, 3, f"{TRACEBACK}ValueError: bad_alloc"), None),
        (OSError(errno.ENOSPC, "No space left on device"), None),
    ],
)
def test_a_failed_allocation_is_known_by_what_raised_it(error: Exception, said: str | None) -> None:
    assert failed_allocation(error) == said


def test_a_failed_allocation_becomes_a_message_with_what_was_wanted_and_the_settings() -> None:
    with (
        pytest.raises(
            OutOfMemory, match=r"^out of memory here: 9 TiB\. Settings that use memory: a=1"
        ),
        memory_for("out of memory here", {"a": 1}),
    ):
        raise MemoryError("9 TiB")
    with (
        pytest.raises(ConfigError, match=r"^no room: 9 TiB$"),
        memory_for("no room", {}, ConfigError),
    ):
        raise MemoryError("9 TiB")
    with pytest.raises(ValueError, match="mine"), memory_for("no room", {}):
        raise ValueError("mine")


def test_a_folder_is_tried_for_writing_and_left_as_it_was(tmp_path: Path) -> None:
    assert unwritable(tmp_path) is None
    assert unwritable(tmp_path / "a" / "b") is None
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").touch()
    assert unwritable(tmp_path / "file" / "x") == f"{tmp_path / 'file'} is a file"
