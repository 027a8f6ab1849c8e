"""One process per job of a sweep, for `hydra/launcher=processes` and `ray`.

Local processes are forks of a fork server that has imported the modules for training, so that a job
starts in a tenth of a second and with clean memory. They always end with the command. A process
runs the job that is written in its folder. Progress and result are read from its `run.json`.
"""

from __future__ import annotations

import os
import platform
import signal
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from border_cli.config.job import Job
from border_cli.core.stop import SaveFlag, StopFlag
from border_cli.errors import BorderError, Interrupted
from border_cli.process.signals import SAVE, stopping_on_signals
from border_cli.run.lock import RunInUse
from border_cli.run.run_folder import EarlierRun
from border_cli.run.status import DONE, KILLED, KILLED_REASON, end_from_outside, record_not_begun
from border_cli.run.sweep_folder import read_stop
from border_cli.sweep.listing import Sweep
from border_cli.sweep.panel import JobView, SweepPanel
from border_cli.sweep.request import LaunchTerms, write_request
from border_cli.sweep.server import start_server
from border_cli.sweep.worker import run_in_a_child
from border_cli.system.child_process import ChildProcess
from border_cli.system.start import wait_for

POLL_S = 0.25


class JobProcess(Protocol):
    """The process of a job, possibly on another machine."""

    host: str | None  # None while it waits for a machine

    @property
    def pid(self) -> int:
        """The process id; 0 if there is none yet."""

    @property
    def waitables(self) -> list[Any]:
        """Descriptors that become readable with the next message and, the last one, with the
        process's end."""

    @property
    def alive(self) -> bool:
        """True if the process still runs, as far as is known."""

    def listen(self) -> None:
        """Receives all pending messages from the process."""

    def signal(self, signum: int) -> None:
        """Sends a signal to the process."""

    def kill(self) -> None:
        """Kills the process."""

    def reap(self) -> str | None:
        """Ensures that the process has ended. Returns the cause, or None for a normal end."""


StartProcess = Callable[[int, Path], JobProcess]  # number and folder of a job


class LocalProcess(ChildProcess):
    """The process of a job on this machine."""

    def __init__(self, number: int, folder: Path) -> None:
        super().__init__(start_server(), f"job {number}", run_in_a_child, str(folder), nice=0)
        self.host: str | None = platform.node()

    def signal(self, signum: int) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.pid, signum)


class JobLauncher(Protocol):
    """Runs the jobs of a sweep elsewhere (`JOB_LAUNCHERS`). Built from the settings of its
    launcher."""

    cores: int  # cores that a job uses on its machine

    def refuse_missing(self) -> None:
        """Raises if a required package is not installed. Called before the dry build."""

    def at_once(self, jobs: int) -> int:
        """Returns how many of the sweep's `jobs` may run in parallel; `jobs` is 0 if unknown."""

    def starts(self, root: Path) -> AbstractContextManager[StartProcess]:
        """Yields a function that starts the processes of jobs with folders below `root`."""


@dataclass
class Processes:
    """Jobs that run in their own processes. Owned by the thread that runs the command.

    Within the block, signals are passed on to the jobs, which save and, if requested, end. Leaving
    the block ends all jobs.
    """

    start_process: StartProcess  # starts the process of a job
    terms: LaunchTerms
    command: Sequence[str]  # as typed
    stop: StopFlag = field(default_factory=StopFlag)
    _save: SaveFlag = field(default_factory=SaveFlag)
    _running: list[tuple[JobView, JobProcess]] = field(default_factory=list)

    def __enter__(self) -> Processes:
        self._signals = stopping_on_signals(self.stop, self._save)
        # A second signal ends this process and its children, leaving their last checkpoints.
        self._signals.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._signals.__exit__(*error)
        for _, process in self._running:
            process.kill()
            process.reap()

    @property
    def running(self) -> list[JobView]:
        """The running jobs."""
        return [view for view, _ in self._running]

    def start(self, job: Job, view: JobView) -> None:
        """Starts the process of a job."""
        write_request(job, self.terms)
        self._running.append((view, self.start_process(view.number, job.folder)))

    def cancel_waiting(self) -> None:
        """Cancels the jobs that still wait for a machine."""
        for view, process in list(self._running):
            if process.host is None:
                self._running.remove((view, process))
                process.kill()

    def poll(self) -> list[tuple[JobView, str]]:
        """Waits briefly for messages and passes signals on. Returns the ended jobs, each with the
        reason why its process ended."""
        wait_for([*{item for _, process in self._running for item in process.waitables}], POLL_S)
        if self.stop.requested:  # repeatedly: a process that is starting may miss signals
            reason = self.stop.reason
            self.signal(reason.signum if isinstance(reason, Interrupted) else signal.SIGTERM)
        if self._save.requested:
            self._save.clear()
            self.signal(SAVE)
        ended = []
        for view, process in list(self._running):
            alive = process.alive  # read before the messages, so that none are missed
            process.listen()
            view.waits = process.host is None
            if not alive:
                self._running.remove((view, process))
                ended.append((view, self._reap(view, process)))
        return ended

    def signal(self, signum: int) -> None:
        """Sends a signal to all jobs."""
        for _, process in self._running:
            process.signal(signum)

    def _reap(self, view: JobView, process: JobProcess) -> str:
        """Reaps a process and returns why it ended. Records the end if the process could not."""
        pid, host, cause = process.pid, process.host, process.reap()
        reason = (cause or KILLED_REASON).strip().rpartition("\n")[2]
        with suppress(OSError, BorderError):  # if the process could not record its own end
            if not end_from_outside(view.folder, pid, KILLED, reason, host=host):
                record_not_begun(view.folder, command=self.command, reason=reason)
        return reason


@dataclass
class ProcessLauncher:
    """Runs the jobs of a sweep, `at_once` in parallel. Owned by the command's thread."""

    start_process: StartProcess  # starts the process of a job
    sweep: Sweep
    terms: LaunchTerms
    at_once: int
    earlier: Mapping[Path, EarlierRun]  # see `Plan`

    def launch(self, jobs: Sequence[Job]) -> None:
        """Returns when all jobs have ended. Raises SystemExit once an interrupted sweep has
        saved."""
        self._panel = SweepPanel(len(jobs), quiet=self.sweep.quiet)
        processes = Processes(self.start_process, self.terms, self.sweep.plan.command)
        with processes, self._panel:
            self._run_all(processes, deque(jobs))
        reason = processes.stop.reason
        if isinstance(reason, Interrupted):
            raise SystemExit(reason.exit_status)

    def _run_all(self, processes: Processes, waiting: deque[Job]) -> None:
        while waiting or processes.running:
            if processes.stop.requested or read_stop(self.sweep.root) is not None:
                waiting.clear()
                processes.cancel_waiting()
            while waiting and len(processes.running) < self.at_once:
                self._start(processes, waiting.popleft())
            if processes.running:
                for view, reason in processes.poll():
                    self._report_end(view, reason)
            self._panel.show(processes.running, len(waiting))

    def _start(self, processes: Processes, job: Job) -> None:
        """Starts the process of a job, unless the run in its folder is finished."""
        view = JobView(job.number or 0, self.sweep.label(job.overrides), folder=job.folder)
        earlier = self.earlier.get(job.folder)
        if earlier is not None and earlier.finished:
            self._panel.report_end(view, DONE, earlier.score, earlier.message)
        else:
            processes.start(job, view)

    def _report_end(self, view: JobView, reason: str) -> None:
        row = self.sweep.row_of(view.folder)
        if row.status == "running":  # another process runs it
            self._panel.report_end(view, "in use", None, str(RunInUse(view.folder)))
            return
        self._panel.report_end(view, row.status, row.score, row.reason or reason)
