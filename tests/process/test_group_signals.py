"""A signal to the whole process group is meant for the process that trains."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from multiprocessing import forkserver, resource_tracker
from multiprocessing.connection import wait
from pathlib import Path

import leftovers

from border_cli.process.child import Pipe
from border_cli.process.child_process import ChildProcess
from border_cli.process.start import StartMethod, start_context

GROUP = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)


def settled(pid: int, *fields: str) -> set[int]:
    """The signals that a process blocks, ignores or catches, as the fields of its status say."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    masks = [int(line.split()[1], 16) for line in lines if line.partition(":")[0] in fields]
    return {number for mask in masks for number in range(1, 65) if mask >> (number - 1) & 1}


def tell_whether_it_lives(pipe: Pipe) -> None:
    pipe.send("begun", sorted(settled(os.getpid(), "SigBlk")))
    pipe.receive()
    pipe.send("alive")


def test_neither_actors_nor_what_they_come_from_end_by_it() -> None:
    """In a process of its own, where no other test has started a fork server its own way."""
    folders = [str(Path(__file__).parent), str(Path(leftovers.__file__).parent)]
    code = f"import sys; sys.path[:0] = {folders!r}; import test_group_signals as t; t.look()"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def look() -> None:
    tracker = resource_tracker._resource_tracker._pid  # type: ignore[attr-defined]
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    context = start_context(StartMethod.forkserver, [])
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == mask
    server = forkserver._forkserver._forkserver_pid  # type: ignore[attr-defined]
    assert set(GROUP) <= settled(server, "SigBlk")  # also while it imports
    others = leftovers.python_s_own() - {tracker}  # one that others started is as they want it
    child = ChildProcess(context, "the child", tell_whether_it_lives, nice=0)
    try:
        assert_nobody_ends(child, others)
    finally:
        child.kill()
        cause = child.reap()
    assert cause is None


def assert_nobody_ends(child: ChildProcess, others: set[int]) -> None:
    while not child.inbox:
        wait(child.waitables, 5.0)
        child.listen()
    for pid in others:
        assert set(GROUP) <= settled(pid, "SigBlk", "SigIgn", "SigCgt")
    for pid in {child.pid} | others:
        for signum in GROUP:
            os.kill(pid, signum)
    child.connection.send("go on")
    while child.alive:
        wait(child.waitables, 5.0)
        child.listen()
    child.listen()  # to what it said between the last look and its end
    assert list(child.inbox) == [("begun", []), ("alive",)]
    assert all(leftovers.is_alive(pid) for pid in others)
