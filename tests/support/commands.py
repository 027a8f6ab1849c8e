"""Runs commands in this process or in a child process, and reads what they wrote."""

from __future__ import annotations

import csv
import json
import logging
import os
import resource
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryFile
from time import monotonic
from typing import Any

import pytest
import torch

from border_cli.cli import eval as eval_command
from border_cli.cli import record as record_command
from border_cli.cli import runs as runs_command
from border_cli.cli.train import main
from border_cli.recorder.read import read_metrics

MODULES = Path(__file__).parents[1] / "user_modules"
DEADLINE_S = 300.0  # far longer than any command takes
QUICK = (  # settings of a run that ends within seconds
    "trainer.max_opt_steps=2",
    "trainer.warmup_period=8",
    "agent.batch_size=4",
    "agent.hidden=[4]",
    "evaluator.num_episodes=1",
    "actor_manager.n_buffer=4",
)
SLOW = ("imports=[unruly]", "env.id=Slow-v0")  # a run that waits leaves the cores to others
ENDLESS = (  # settings of a run in an environment of `unruly`; only a fault or a signal ends it
    "imports=[unruly]",
    "run_dir=run",
    "trainer.max_opt_steps=1000000",
    "trainer.warmup_period=20",
    "trainer.record_interval=10",
    "agent.hidden=[4]",
    "agent.batch_size=4",
    "evaluator.num_episodes=1",
    "actor_manager.num_actors=1",
    "actor_manager.n_buffer=10",
)

# Python code for `Command(before=…)`: drops root's capabilities to bypass file modes, so that files
# without write permission are read-only for root as well.
UNPRIVILEGED = (
    "import ctypes; os.getuid() or [ctypes.CDLL(None).prctl(24, cap, 0, 0, 0) for cap in (1, 2)]"
)
# Python code that locks the run directory in its argument until the end of its input.
HOLD = """
import os, sys
from pathlib import Path
from border_cli.run.lock import RunLock
from border_cli.run.status import RunRecord
with RunLock(Path(sys.argv[1])):
    RunRecord(Path(sys.argv[1])).begin()
    print("held", flush=True)
    sys.stdin.read()
"""


def train_status(*argv: str) -> int:
    """Runs `border-train` in this process and returns its exit status."""
    return _status(main, argv)


def eval_status(*argv: str) -> int:
    """Runs `border-eval` in this process and returns its exit status."""
    return _status(eval_command.main, argv)


def record_status(*argv: str) -> int:
    """Runs `border-record` in this process and returns its exit status."""
    return _status(record_command.main, argv)


def runs_status(*argv: str) -> int:
    """Runs `border-runs` in this process and returns its exit status."""
    return _status(runs_command.main, argv)


def _status(command: Callable[[tuple[str, ...]], None], argv: tuple[str, ...]) -> int:
    try:
        command(argv)
    except SystemExit as end:
        return int(end.code or 0)
    return 0


@contextmanager
def isolated(folder: Path) -> Iterator[pytest.MonkeyPatch]:
    """Makes `folder` the current directory, and restores what a command changes in this process."""
    root = logging.getLogger()
    before, level = list(root.handlers), root.level
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.delenv("BORDER_CONFIG_PATH", raising=False)
        patch.setattr(sys, "path", list(sys.path))
        yield patch
    for handler in set(root.handlers) - set(before):
        handler.close()
    root.handlers[:] = before
    root.setLevel(level)


def is_pending(pid: int, signum: int) -> bool:
    """Returns whether a signal is pending for a process."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    [pending] = [int(line.split()[1], 16) for line in lines if line.startswith("ShdPnd:")]
    return bool(pending >> (signum - 1) & 1)


def is_stopped(pid: int) -> bool:
    """Returns whether a signal has stopped a process."""
    return "\nState:\tT " in Path(f"/proc/{pid}/status").read_text()


def facts_of(run_dir: Path) -> dict[str, Any]:
    """Returns the content of `run.json`."""
    facts: dict[str, Any] = json.loads((run_dir / "run.json").read_text(encoding="utf-8"))
    return facts


def rows_of(run_dir: Path) -> list[dict[str, Any]]:
    """Returns the rows of `metrics.jsonl`."""
    return read_metrics(run_dir / "metrics.jsonl")


def repeatable_rows(run_dir: Path) -> list[dict[str, Any]]:
    """Returns the rows without times and rates, which differ between equal runs."""
    return [
        {name: value for name, value in row.items() if "time" not in name and "per_sec" not in name}
        for row in rows_of(run_dir)
    ]


def sweep_rows(root: Path) -> list[dict[str, str]]:
    """Returns the rows of `sweep.csv`, one per job."""
    with (root / "sweep.csv").open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def process_state() -> dict[str, Any]:
    """Returns the state of this process that every command must restore."""
    return {
        "signals": [signal.getsignal(signum) for signum in (signal.SIGINT, signal.SIGTERM)],
        "hang-up": signal.getsignal(signal.SIGHUP),
        "torch threads": torch.get_num_threads(),
        "folder": Path.cwd(),
        "threads": set(threading.enumerate()),
        "arguments": list(sys.argv),
        "streams": (sys.stdout, sys.stderr),
        "logging errors": logging.raiseExceptions,
    }


def lasting_state() -> dict[str, Any]:
    """Returns the state of this process that commands may change; `isolated` restores it."""
    root = logging.getLogger()
    return {"path": list(sys.path), "handlers": list(root.handlers), "level": root.level}


def open_files_below(folder: Path) -> set[str]:
    """Returns the open files of this process below `folder`; empty without /proc."""
    opened = set()
    for entry in Path("/proc/self/fd").glob("*"):
        with suppress(OSError):  # the descriptor of the listing itself is already closed
            opened.add(str(entry.readlink()))
    return {path for path in opened if path.startswith(f"{folder}/")}


@contextmanager
def full_disk(most_bytes: int) -> Iterator[None]:
    """Limits every file that this process writes within the block to `most_bytes` bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, before[1]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "dont_write_bytecode", True)  # Python would keep a part of a file
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)


@contextmanager
def other_process(run_dir: Path) -> Iterator[subprocess.Popen[str]]:
    """Starts a process that holds the lock of a run directory until the end of the block."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(run_dir)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def stamps(folder: Path) -> dict[Path, tuple[int, int]]:
    """Returns size and modification time of every file and directory below `folder`."""
    stats = {path: path.lstat() for path in folder.rglob("*")}
    return {path: (stat.st_size, stat.st_mtime_ns) for path, stat in stats.items()}


class Command:
    """A command in a child process, killed at the end of the `with` block.

    Its output goes to a temporary file, which can be read while the command runs.
    """

    def __init__(
        self,
        folder: Path,
        *argv: str,
        before: str = "pass",
        module: str = "border_cli",
        deadline_s: float = DEADLINE_S,
    ) -> None:
        """`before` is Python code that the child runs before it executes `module`.

        `preexec_fn` is no alternative: Python 3.12 warns about it in a process with threads.
        """
        self._deadline_s = deadline_s
        self._output = TemporaryFile()  # noqa: SIM115 - closed in __exit__
        self._last_end, held = os.pipe()  # `held` stays open in the command and its monitor
        # An editable install adds an entry that is not a folder; it would be resolved against cwd.
        path = [entry for entry in sys.path if Path(entry).is_absolute()]
        become = f"import os, resource, signal, sys; {before}; os.execv(sys.argv[1], sys.argv[1:])"
        self._process = subprocess.Popen(
            [sys.executable, "-ISc", become, sys.executable, "-m", module, *argv],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(MODULES), *path])},
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=subprocess.STDOUT,
            pass_fds=(held,),
        )
        os.close(held)

    def __enter__(self) -> Command:
        return self

    def __exit__(self, *rest: object) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._last_end)
        self._output.close()

    @property
    def pid(self) -> int:
        return self._process.pid

    def send(self, signum: int) -> None:
        """Sends a signal to the process."""
        self._process.send_signal(signum)

    def until(self, ready: Callable[[], bool]) -> None:
        """Waits until `ready()`; fails if the process ends first or the deadline passes."""
        end_s = monotonic() + self._deadline_s
        while not ready():
            assert monotonic() < end_s, "the deadline has passed"
            try:
                self._process.wait(0.02)
            except subprocess.TimeoutExpired:
                continue
            assert ready(), f"ended too early:\n{self.said_so_far()}"

    def ended(self) -> tuple[int, str]:
        """Waits until the command and its monitor end; returns the exit status and the output."""
        status = self._process.wait(self._deadline_s)
        assert select.select([self._last_end], [], [], self._deadline_s)[0], (
            "its monitor is still running"
        )
        return status, self.said_so_far()

    def said_so_far(self) -> str:
        """Returns the output so far."""
        size = os.fstat(self._output.fileno()).st_size
        return os.pread(self._output.fileno(), size, 0).decode()
