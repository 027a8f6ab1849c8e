"""Processes that end with this command."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from threading import Lock, local

PATIENCE_S = 10.0  # between asking a process to end and killing it
SHOWN_LINES = 15  # of what a process said before it failed


def shares(cores: Sequence[int], jobs: int) -> list[list[int]]:
    """The cores of each job, in turns; where there are fewer cores than jobs, some share one."""
    return [list(cores[job::jobs]) or [cores[job % len(cores)]] for job in range(jobs)]


class Stopped(Exception):
    """The user asked this command to stop."""


class Failed(Exception):
    """A process did not do what it was started for."""


class Children:
    """Runs commands, one per calling thread; any thread may `stop` them all.

    Each of the `jobs` threads has its share of the cores: runs that counted on the same cores for
    their threads would keep each other waiting.
    """

    def __init__(self, jobs: int = 1) -> None:
        self._lock = Lock()
        self._stopped = False
        self._running: set[subprocess.Popen[str]] = set()
        self._cores = shares(sorted(os.sched_getaffinity(0)), jobs)
        self._local = local()

    def run(
        self, command: Sequence[str], *, folder: Path, log: Path, variables: dict[str, str]
    ) -> str:
        """Its standard output, which the log gets too. Raises Failed with the log's end."""
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
            output, _ = process.communicate()
            errors.write(output)
        with self._lock:
            self._running.discard(process)
            if self._stopped:
                raise Stopped
        if process.returncode:
            last = log.read_text(encoding="utf-8").splitlines()[-SHOWN_LINES:]
            raise Failed(f"exit status {process.returncode}:\n  " + "\n  ".join(last))
        return output

    def _share(self) -> list[int]:
        """The cores of this thread; the lock is held."""
        if not hasattr(self._local, "cores"):
            self._cores.append(share := self._cores.pop(0))
            self._local.cores = share
        cores: list[int] = self._local.cores
        return cores

    def stop(self) -> None:
        """Ends all that run, and whatever was going to be started."""
        with self._lock:
            self._stopped = True
            running = list(self._running)
        for process in running:
            process.terminate()
        for process in running:
            try:
                process.wait(PATIENCE_S)
            except subprocess.TimeoutExpired:
                process.kill()
