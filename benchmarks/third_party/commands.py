"""Commands with a time limit, which end with all of their child processes."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import NamedTuple

import psutil

PATIENCE_S = 5.0  # seconds between SIGTERM and SIGKILL
DATA_KIB = 8 * 1024 * 1024  # memory limit of a process, as `ulimit -d` takes it
MOST_BYTES = 1_000_000  # of an output, from its end
# A limit set by the shell needs no code between fork and exec, which would be unsafe in a thread.
LIMITED = ("/bin/sh", "-c", f'ulimit -d {DATA_KIB}; exec "$@"', "sh")


class Stopped(Exception):
    """Raised when the user stops the trial."""


class Ended(NamedTuple):
    """A command that has ended."""

    status: int | None  # None: it was killed at the time limit
    stdout: str
    stderr: str
    duration_s: float

    @property
    def output(self) -> str:
        """Both streams, errors last."""
        return f"{self.stdout}\n{self.stderr}"


class Commands:
    """Runs commands, each in a process group of its own; any thread may `stop` them all."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._stopped = False
        self._running: set[subprocess.Popen[bytes]] = set()

    def run(
        self, command: Sequence[str], *, folder: Path, variables: Mapping[str, str], limit_s: float
    ) -> Ended:
        """Runs a command in `folder` and kills its process group after `limit_s` seconds."""
        began_s = time.monotonic()
        paths = [folder / f".{name}" for name in ("stdout", "stderr")]
        with paths[0].open("wb") as stdout, paths[1].open("wb") as stderr:
            with self._lock:
                if self._stopped:
                    raise Stopped
                process = subprocess.Popen(
                    [*LIMITED, *command],
                    cwd=folder,
                    env=variables,
                    stdin=subprocess.DEVNULL,
                    stdout=stdout,
                    stderr=stderr,
                    start_new_session=True,
                )
                self._running.add(process)
            status: int | None
            try:
                status = process.wait(max(0.1, limit_s))
            except subprocess.TimeoutExpired:
                status = None
            end_group(process)
        with self._lock:
            self._running.discard(process)
            if self._stopped:
                raise Stopped
        texts = [read_end(path) for path in paths]
        return Ended(status, texts[0], texts[1], time.monotonic() - began_s)

    def stop(self) -> None:
        """Ends all running commands and prevents new ones."""
        with self._lock:
            self._stopped = True
            running = list(self._running)
        for process in running:
            end_group(process)


def end_group(process: subprocess.Popen[bytes]) -> None:
    """Ends a process and those that it has left in its group, first by SIGTERM."""
    if process.poll() is None:
        _signal_group(process.pid, signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            process.wait(PATIENCE_S)
    _signal_group(process.pid, signal.SIGKILL)
    process.wait()


def _signal_group(pid: int, number: int) -> None:
    with suppress(ProcessLookupError):  # nobody is left
        os.killpg(pid, number)


def end_processes_of(folder: Path) -> None:
    """Kills the processes whose HOME is below `folder`: those that left their process group."""
    for process in psutil.process_iter():
        try:
            if Path(process.environ().get("HOME", "/")).is_relative_to(folder):
                process.kill()
        except (psutil.Error, OSError):
            continue  # of another user, or already gone


def read_end(path: Path) -> str:
    """Returns the last part of an output."""
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - MOST_BYTES))
        return file.read().decode(errors="replace")
