"""Child processes that end when this command ends."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from threading import Condition, local
from typing import NamedTuple

PATIENCE_S = 10.0  # seconds between SIGTERM and SIGKILL
SHOWN_LINES = 15  # last lines of the log of a failed process


def shares(cores: Sequence[int], jobs: int) -> list[list[int]]:
    """Distributes the cores over the jobs; with fewer cores than jobs, some jobs share a core."""
    return [list(cores[job::jobs]) or [cores[job % len(cores)]] for job in range(jobs)]


class Stopped(Exception):
    """Raised when the user stops this command."""


class Failed(Exception):
    """Raised when a process fails."""


class Ended(NamedTuple):
    """A process that has ended."""

    output: str
    cpu_s: float  # of the process and the children that it has waited for


class Children:
    """Runs commands, one per calling thread; any thread may `stop` them all.

    Each of the `jobs` threads has its own cores, because runs whose threads share cores would wait
    for each other. Only the calling thread reaps its process, because a process can be reaped once.
    """

    def __init__(self, jobs: int = 1) -> None:
        self._lock = Condition()  # notified when a process has ended
        self._stopped = False
        self._running: set[subprocess.Popen[str]] = set()
        self._cores = shares(sorted(os.sched_getaffinity(0)), jobs)
        self._local = local()

    def run(
        self, command: Sequence[str], *, folder: Path, log: Path, variables: dict[str, str]
    ) -> Ended:
        """Returns the standard output, which is also logged, and the CPU time; raises Failed with
        the log's end."""
        with log.open("a", encoding="utf-8") as errors:
            errors.write(f"$ {' '.join(command)}\n")
            errors.flush()
            with self._lock:
                if self._stopped:
                    raise Stopped
                process = subprocess.Popen(
                    command,
                    cwd=folder,
                    env=variables,
                    stdout=subprocess.PIPE,
                    stderr=errors,
                    text=True,
                )
                os.sched_setaffinity(process.pid, self._share())
                self._running.add(process)
            assert process.stdout is not None
            with process.stdout as stdout:
                output = stdout.read()
            os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
            with self._lock:
                _, status, usage = os.wait4(process.pid, 0)
                process.returncode = os.waitstatus_to_exitcode(status)
                self._running.discard(process)
                self._lock.notify_all()
                stopped = self._stopped
            errors.write(output)
        if stopped:
            raise Stopped
        if process.returncode:
            last = log.read_text(encoding="utf-8").splitlines()[-SHOWN_LINES:]
            raise Failed(f"exit status {process.returncode}:\n  " + "\n  ".join(last))
        return Ended(output, usage.ru_utime + usage.ru_stime)

    def _share(self) -> list[int]:
        """Returns the cores of this thread; call with the lock held."""
        if not hasattr(self._local, "cores"):
            self._cores.append(share := self._cores.pop(0))
            self._local.cores = share
        cores: list[int] = self._local.cores
        return cores

    def stop(self) -> None:
        """Ends all running processes and prevents new ones."""
        with self._lock:
            self._stopped = True
            self._signal(signal.SIGTERM)
            if not self._lock.wait_for(lambda: not self._running, PATIENCE_S):
                self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        """Signals all running processes; call with the lock held.

        `Popen.send_signal` would reap a process that has just ended.
        """
        for process in self._running:
            os.kill(process.pid, number)
