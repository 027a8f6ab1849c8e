"""A process for each job of a sweep, as the command sees them: what `hydra/launcher=processes` and
`ray` have in common, and the processes of the former.

Those are forks of a fork server that has imported what training needs, so that a job begins in a
tenth of a second and with clean memory. They end with the command, whatever ends that.
"""

from __future__ import annotations

import logging
import math
import platform
import signal
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from hydra.core.utils import JobReturn, JobStatus
from omegaconf import DictConfig

from border_cli.cli.job_process import ENDED, PROGRESS, SAVE, STOP, JobParts, run
from border_cli.cli.signals import stopping_on_signals
from border_cli.cli.sweep_panel import JobView, SweepPanel
from border_cli.cli.task import Task
from border_cli.config.jobs import OUR_LAUNCHER
from border_cli.config.sweep_loader import SweepLoader
from border_cli.config.sweep_plan import sweep_job
from border_cli.core.config import StartMethod
from border_cli.core.errors import BorderError, Interrupted, RunFailed
from border_cli.core.stop import SaveFlag, StopFlag
from border_cli.process.child_process import GONE_S, ChildProcess
from border_cli.process.start import pack, start_context, wait_for
from border_cli.run.status import (
    KILLED,
    LOST,
    RunLock,
    end_from_outside,
    read_run,
    record_failure,
)
from border_cli.run.sweep_folder import add_job, read_stop

log = logging.getLogger(__name__)

PRELOAD = (
    "border_cli.cli.job_process",
    "border_cli.launch.training",
    "border_cli.launch.dry_build",
)
LOOK_S = 0.25


def start_server() -> None:
    """Starts the fork server, which imports torch while this process does other things."""
    start_context(StartMethod.auto, PRELOAD)


class JobChild(Protocol):
    """The process of a job, which may be elsewhere; the members of `ChildProcess`."""

    inbox: deque[tuple[Any, ...]]

    @property
    def waitables(self) -> list[Any]:
        """What is readable when there is a message, or when it has ended."""

    @property
    def pid(self) -> int:
        """Its process id; 0 while it has none."""

    @property
    def alive(self) -> bool:
        """Whether it may still say something."""

    def listen(self) -> None:
        """Takes in its messages so far."""

    def tell(self, *words: Any) -> None:
        """Sends it a message."""

    def kill(self) -> None:
        """Ends it whatever it does."""

    def reap(self) -> str | None:
        """Makes sure that it is gone; returns why it ended, None where it was meant to."""


class JobStarter(Protocol):
    """Starts the processes of jobs, and says where they are."""

    launcher: str  # its name
    cores_shared: int  # by so many jobs on one machine
    cores: int | None  # of a job; None: what the machine has

    def start(self, number: int, folder: Path, packed: bytes) -> JobChild:
        """Starts the process of a job."""

    def host_of(self, child: JobChild) -> str | None:
        """The machine on which it is; None while it waits for one."""


class ProcessStarter:
    """Starts them on this machine."""

    launcher = OUR_LAUNCHER
    cores: int | None = None

    def __init__(self, at_once: int) -> None:
        self.cores_shared = at_once

    def start(self, number: int, folder: Path, packed: bytes) -> JobChild:
        """Forks the fork server."""
        context = start_context(StartMethod.auto, PRELOAD)
        return ChildProcess(context, f"job {number}", run, str(folder), packed, nice=0)

    def host_of(self, child: JobChild) -> str | None:
        """This one."""
        del child
        return platform.node()


class Running:
    """A job whose process runs."""

    def __init__(self, view: JobView, folder: Path, child: JobChild) -> None:
        self.view = view
        self.folder = folder
        self.child = child
        self.ended: tuple[str, float, str] | None = None  # status, score and reason as it said


class JobProcesses:
    """Runs jobs, `at_once` of them at a time; owned by the thread that runs the command."""

    def __init__(
        self, task: Task, starter: JobStarter, loader: SweepLoader, config: DictConfig
    ) -> None:
        self._task = task
        self._starter = starter
        self._loader = loader
        self._config = config
        self._sweep = task.sweep
        self._stop, self._save = StopFlag(), SaveFlag()
        self._stop_told = False
        self._running: dict[int, Running] = {}
        self._returns: dict[int, JobReturn] = {}

    def run(self, job_overrides: Sequence[Sequence[str]], first: int) -> list[JobReturn]:
        """Returns what each job returned; raises SystemExit once an interrupted sweep has saved."""
        jobs = dict(enumerate(map(list, job_overrides), first))
        for number, overrides in jobs.items():
            if self._task.planned(overrides, number) is not None:
                continue
            folder = str(self._folder(number, overrides).relative_to(self._sweep.root))
            add_job(self._sweep.root, sweep_job(number, overrides, folder))
        self._panel = SweepPanel(len(jobs), quiet=self._sweep.quiet)
        try:
            with (
                stopping_on_signals(self._stop, self._on_second_signal, self._save),
                self._panel,
            ):
                self._run_all(deque(jobs.items()))
        finally:
            for each in self._running.values():
                each.child.kill()
                each.child.reap()
        reason = self._stop.reason
        if isinstance(reason, Interrupted):
            raise SystemExit(reason.exit_status)
        return [self._returns[number] for number in jobs]

    def _run_all(self, waiting: deque[tuple[int, list[str]]]) -> None:
        while waiting or self._running:
            while waiting and len(self._running) < self._sweep.at_once and self._may_start():
                self._start(*waiting.popleft())
            if waiting and not self._may_start():
                for number, overrides in waiting:
                    self._not_started(number, overrides)
                waiting.clear()
            if not self._may_start():
                self._withdraw()
            if self._running:
                self._look()
            self._panel.show([each.view for each in self._running.values()], len(waiting))

    def _not_started(self, number: int, overrides: list[str]) -> None:
        reason = f"not started: {read_stop(self._sweep.root) or 'stopped'}"
        self._returned(number, overrides, math.nan, reason)

    def _withdraw(self) -> None:
        """Takes the jobs back that still wait for a machine."""
        for number, job in list(self._running.items()):
            if self._starter.host_of(job.child) is None:
                del self._running[number]
                job.child.kill()
                self._not_started(number, job.view.overrides)

    def _may_start(self) -> bool:
        return not self._stop.requested and read_stop(self._sweep.root) is None

    def _folder(self, number: int, overrides: Sequence[str]) -> Path:
        return self._sweep.root / (self._loader.folder_of(overrides) or str(number))

    def _start(self, number: int, overrides: list[str]) -> None:
        """Starts the process of a job, unless the run in its folder is finished."""
        planned, folder = self._task.planned(overrides, number), self._folder(number, overrides)
        view = JobView(number, self._sweep.label(overrides), overrides=overrides, folder=folder)
        finished = planned.found.finished if planned else None
        if finished is not None:
            self._panel.ended(view, "done", finished.score, finished.message)
            self._returned(number, overrides, finished.score, None)
            return
        parts = JobParts(
            loader=self._loader,
            task=self._task,
            config=self._config,
            overrides=overrides,
            number=number,
            job=planned.job if planned else None,
            at_once=self._starter.cores_shared,
            cores=self._starter.cores,
        )
        imports = planned.job.config.imports if planned else []
        packed = pack(f"hydra/launcher={self._starter.launcher}", imports, parts)
        child = self._starter.start(number, folder, packed)
        self._running[number] = Running(view, folder, child)

    def _look(self) -> None:
        """Waits for the next message or end, and passes orders on."""
        waitables = {each for job in self._running.values() for each in job.child.waitables}
        wait_for(list(waitables), LOOK_S)
        if self._stop.requested and not self._stop_told:
            self._stop_told = True
            reason = self._stop.reason
            self._tell(STOP, reason.signum if isinstance(reason, Interrupted) else signal.SIGTERM)
        if self._save.requested:
            self._save.clear()
            self._tell(SAVE)
        for number, job in list(self._running.items()):
            # Its end first: what it said before is all there then.
            alive = job.child.alive
            job.child.listen()
            while job.child.inbox:
                self._take(job, job.child.inbox.popleft())
            job.view.waits = self._starter.host_of(job.child) is None
            if not alive:
                del self._running[number]
                self._reap(number, job)

    def _tell(self, *words: Any) -> None:
        for each in self._running.values():
            each.child.tell(*words)

    def _take(self, job: Running, message: tuple[Any, ...]) -> None:
        word, *values = message
        if word == PROGRESS:
            job.view.progress = values[0]
        elif word == ENDED:
            job.ended = (values[0], values[1], values[2])

    def _reap(self, number: int, job: Running) -> None:
        """The end of a process, whatever ended it."""
        pid, host = job.child.pid, self._starter.host_of(job.child)
        cause = job.child.reap()
        if job.ended is None:
            self._record(job.folder, pid, host, _last_line(cause))
        facts = read_run(job.folder)
        status, score, reason = job.ended or (
            str(facts.get("status", LOST)),
            math.nan,
            _last_line(cause),
        )
        if status != "in use":  # whose facts are those of another process
            reason = str(facts.get("exit_reason") or reason)  # as the table has it
        self._panel.ended(job.view, status, score, reason)
        self._returned(number, job.view.overrides, score, None if status == "done" else reason)

    def _record(self, folder: Path, pid: int, host: str | None, reason: str) -> None:
        """Writes the end of a process that could not write it itself."""
        with suppress(OSError, BorderError):
            if end_from_outside(folder, pid, "killed", reason, host=host):
                return
            with RunLock(folder):  # which makes it: the process may not have got that far
                if not read_run(folder):
                    record_failure(folder, command=self._task.command, reason=reason)

    def _returned(
        self, number: int, overrides: list[str], score: float, failure: str | None
    ) -> None:
        returned = JobReturn(overrides=overrides)
        value = score if failure is None else self._sweep.failed_value
        if value is None:
            returned.status, returned.return_value = JobStatus.FAILED, RunFailed(str(failure))
        else:
            returned.status, returned.return_value = JobStatus.COMPLETED, value
        self._returns[number] = returned

    def _on_second_signal(self, signum: int) -> None:
        """Leaves nothing behind but the last checkpoints."""
        reason = f"quit immediately: {Interrupted(signum)}"
        for each in self._running.values():
            with suppress(OSError, BorderError):  # first: a killed job's monitor writes an end, too
                host = self._starter.host_of(each.child)
                pid = each.child.pid
                end_from_outside(each.folder, pid, "interrupted", reason, host=host, stuck=True)
            each.child.kill()
        for end in {each.child.waitables[-1] for each in self._running.values()}:
            wait_for([end], GONE_S)  # one for all jobs, where they are elsewhere


def _last_line(cause: str | None) -> str:
    return (cause or KILLED).strip().rpartition("\n")[2]
