"""Free memory under cgroup limits, failed allocations, and checking that a folder is writable."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from border_cli.errors import ActorCrashed, ConfigError, OutOfMemory, RunFailed
from border_cli.system.machine import (
    failed_allocation,
    free_memory,
    machine_bytes,
    memory_for,
    resident_bytes,
    unwritable,
)

MIB = 2**20


def group(folder: Path, *, limit: str, usage: int, inactive: int = 0) -> None:
    """Writes the files of a cgroup, whose usage includes `inactive` bytes of cached files."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "memory.max").write_text(f"{limit}\n")
    (folder / "memory.current").write_text(f"{usage}\n")
    (folder / "memory.stat").write_text(f"anon 5\ninactive_file {inactive}\n")


def free_in(cgroups: Path, path: str) -> int:
    """Bytes of memory available to a process in this cgroup."""
    proc_cgroup = cgroups.with_name("own")
    proc_cgroup.write_text(f"9:name=systemd:/\n4:memory:/of/version/1\n0::{path}\n")
    return free_memory(cgroups, proc_cgroup)


def test_memory_is_between_an_interpreter_and_the_machine(tmp_path: Path) -> None:
    assert 5_000_000 < resident_bytes() < machine_bytes()
    assert 0 < free_memory(tmp_path, tmp_path / "missing") < machine_bytes()


def test_the_tightest_group_above_counts_and_cached_files_do_not(tmp_path: Path) -> None:
    mount = tmp_path / "groups"
    group(mount / "a", limit=str(90 * MIB), usage=50 * MIB, inactive=10 * MIB)
    group(mount / "a/b", limit="max", usage=30 * MIB)
    group(mount / "a/b/c", limit=str(80 * MIB), usage=20 * MIB)
    assert free_in(mount, "/a/b/c") == 50 * MIB
    group(mount / "a/b/c", limit=str(60 * MIB), usage=20 * MIB)
    assert free_in(mount, "/a/b/c") == 40 * MIB


@pytest.mark.parametrize("path", ["/", "/docker/5f", "/../.."])
def test_in_a_container_the_group_is_the_mount_point(tmp_path: Path, path: str) -> None:
    group(tmp_path / "groups", limit=str(80 * MIB), usage=90 * MIB)
    assert free_in(tmp_path / "groups", path) == 0


def test_files_that_cannot_be_read_limit_nothing(tmp_path: Path) -> None:
    group(tmp_path / "groups/a", limit=str(MIB), usage=0)
    (tmp_path / "groups/a/memory.current").write_text("nonsense\n")
    assert free_in(tmp_path / "groups", "/a") > MIB


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
            f"{TORCH}you tried to allocate 4000000000 bytes. Error code 12",
        ),
        (RuntimeError("CUDA out of memory. Tried to"), "CUDA out of memory. Tried to"),
        (ActorCrashed(0, 3, f"{TRACEBACK}MemoryError: too\n"), "MemoryError: too"),
        (
            RunFailed(f"the evaluation failed:\n{TRACEBACK}numpy.X._ArrayMemoryError: 1 TiB"),
            "numpy.X._ArrayMemoryError: 1 TiB",
        ),
        (RuntimeError("the simulator exploded"), None),
        (ValueError("bad_alloc"), None),
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
    file = tmp_path / "file"
    file.touch()
    assert unwritable(file / "x") == f"cannot create files in {file} (Not a directory)"
