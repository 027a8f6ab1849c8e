"""A signal to the process group ends neither the actor processes nor their fork server."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from multiprocessing.connection import wait
from pathlib import Path

from border_cli.system.child import Pipe
from border_cli.system.child_process import ChildProcess
from border_cli.system.start import StartMethod, start_context
from tests.support import leftovers

GROUP = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)

SENT = 100  # repetitions, so that some signals arrive at a critical moment


def report_alive(pipe: Pipe) -> None:
    pipe.send("begun", signal.pthread_sigmask(signal.SIG_BLOCK, ()))
    pipe.receive()
    pipe.send("alive")


def send_all(pids: set[int]) -> None:
    for _ in range(SENT):
        for pid in pids:
            for signum in GROUP:
                os.kill(pid, signum)


def test_neither_actors_nor_their_fork_server_end_by_a_group_signal() -> None:
    """Runs in a new process, in which no other test has started a fork server."""
    folders = [str(Path(__file__).parent), str(Path(leftovers.__file__).parent)]
    code = f"import sys; sys.path[:0] = {folders!r}; import test_group_signals as t; t.check()"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=300)


def check() -> None:
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    context = start_context(StartMethod.forkserver, [])
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == mask
    others = leftovers.python_s_own()
    send_all(others)  # including signals during their imports
    child = ChildProcess(context, "the child", report_alive, nice=0)
    while not child.inbox:
        wait(child.waitables, 5.0)
        child.listen()
    send_all(others | {child.pid})
    child.tell("go on")
    while child.alive:
        wait(child.waitables, 5.0)
        child.listen()
    why = child.reap()
    assert why is None, why
    assert list(child.inbox) == [("begun", set()), ("alive",)]
    assert all(leftovers.is_alive(pid) for pid in others)
