"""What a test or a run left behind: processes, segments, open files, threads."""

from __future__ import annotations

import os
import threading
import time
from multiprocessing import forkserver, resource_tracker
from pathlib import Path

PAUSE_S = 0.01


def processes() -> set[int]:
    """Processes below this one; not Python's own fork server and resource tracker.

    What a fork server started is below it also when whoever asked for it has forgotten it.
    """
    own = python_s_own()
    return {pid for parent in (os.getpid(), *own) for pid in below(parent)} - own


def python_s_own() -> set[int]:
    """The fork server and the resource tracker, where there are any; they stay."""
    return {
        pid
        for pid in (
            forkserver._forkserver._forkserver_pid,  # type: ignore[attr-defined]
            resource_tracker._resource_tracker._pid,  # type: ignore[attr-defined]
        )
        if pid is not None
    }


def below(pid: int) -> set[int]:
    found: set[int] = set()
    for file in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            children = [int(each) for each in file.read_text().split()]
        except OSError:  # the thread ended in the meantime
            continue
        for child in children:
            found |= {child} | below(child)
    return found


def wait_until_gone(pids: set[int], timeout_s: float) -> dict[int, str]:
    """Those that are alive all the same after `timeout_s`, with their command lines."""
    deadline_s = time.monotonic() + timeout_s
    while alive := {pid: _command(pid) for pid in pids if is_alive(pid)}:
        if time.monotonic() >= deadline_s:
            break
        threading.Event().wait(PAUSE_S)
    return alive


def is_alive(pid: int) -> bool:
    """Whether a process runs; what only waits to be reaped does not."""
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
    """The file descriptors of this process and where they lead."""
    found = {}
    for entry in Path("/proc/self/fd").iterdir():
        try:
            found[entry.name] = str(entry.readlink())
        except OSError:  # the listing's own
            continue
    return found


def segments() -> int:
    """Anonymous segments that this process has open or mapped."""
    mapped = Path("/proc/self/maps").read_text().count("memfd:border_cli")
    return mapped + sum("memfd:border_cli" in each for each in open_files().values())
