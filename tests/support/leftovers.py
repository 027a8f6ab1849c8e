"""Finds processes, open files and shared memory segments that a test left behind."""

from __future__ import annotations

import os
import threading
import time
from multiprocessing import forkserver, resource_tracker
from pathlib import Path

PAUSE_S = 0.01


def processes() -> set[int]:
    """Returns all descendants of this process, without Python's fork server and resource tracker.

    Descendants of the fork server are included: it is the parent of what it started.
    """
    own = python_s_own()
    return {pid for parent in (os.getpid(), *own) for pid in below(parent)} - own


def python_s_own() -> set[int]:
    """Returns the pids of the fork server and the resource tracker, if running; they stay alive."""
    return {
        pid
        for pid in (
            forkserver._forkserver._forkserver_pid,  # type: ignore[attr-defined]
            resource_tracker._resource_tracker._pid,  # type: ignore[attr-defined]
        )
        if pid is not None
    }


def below(pid: int) -> set[int]:
    """Returns all descendants of a process."""
    descendants: set[int] = set()
    for file in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            children = [int(word) for word in file.read_text().split()]
        except OSError:  # the thread has ended
            continue
        for child in children:
            descendants |= {child} | below(child)
    return descendants


def wait_until_gone(pids: set[int], timeout_s: float) -> dict[int, str]:
    """Waits for processes to end; returns those alive after `timeout_s`, with command lines."""
    deadline_s = time.monotonic() + timeout_s
    while alive := {pid: _command(pid) for pid in pids if is_alive(pid)}:
        if time.monotonic() >= deadline_s:
            break
        threading.Event().wait(PAUSE_S)
    return alive


def is_alive(pid: int) -> bool:
    """Returns whether a process is running; a zombie is not."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return status.rsplit(")", 1)[1].split()[0] not in "ZX"


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return "gone"


def open_files() -> dict[str, str]:
    """Returns the open file descriptors of this process and their targets."""
    targets = {}
    for entry in Path("/proc/self/fd").iterdir():
        try:
            targets[entry.name] = str(entry.readlink())
        except OSError:  # the descriptor of the listing itself
            continue
    return targets


def named_segments() -> set[Path]:
    """Returns the named shared memory segments and semaphores of this machine, except those of
    programs that other tests start at the same time."""
    foreign = ("PostgreSQL.", "joblib", "sem.loky", "plasma", "ray")
    return {path for path in Path("/dev/shm").iterdir() if not path.name.startswith(foreign)}


def segments() -> int:
    """Counts the anonymous shared memory segments that this process has open or mapped."""
    mapped = Path("/proc/self/maps").read_text().count("memfd:border_cli")
    return mapped + sum("memfd:border_cli" in target for target in open_files().values())
