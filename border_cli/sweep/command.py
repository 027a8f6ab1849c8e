"""A sweep, from its command line to the exit status of the command.

The jobs of a grid form one batch, or several if `hydra.sweeper.max_batch_size` is set. Other
sweepers propose one batch after another. Jobs are composed and checked, those of a grid before the
first batch, and written into their folders. A launcher runs them; results are read from there.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from hydra.core.plugins import Plugins
from hydra.core.utils import JobReturn, JobStatus
from omegaconf import open_dict

from border_cli.checks.check import find_earlier_run
from border_cli.checks.dry_build import Tried, dry_build_jobs
from border_cli.checks.needs import Needs
from border_cli.config.job import Job
from border_cli.config.sweep import jobs_of
from border_cli.errors import ConfigError, RunFailed, reason_of
from border_cli.hydra_plugin import SWEEP_LAUNCHER
from border_cli.launch.build import computes_on_cuda
from border_cli.process.startup import resume_garbage_collection
from border_cli.registry import JOB_LAUNCHERS
from border_cli.run.lock import RunInUse
from border_cli.run.status import DONE, record_not_begun
from border_cli.run.sweep_folder import JobRow
from border_cli.settings.run import OnError, RunConfig
from border_cli.sweep.launchers import (
    FolderLoader,
    HydraLauncher,
    SerialLauncher,
    configure_hydra_logging,
    make_context,
    make_plugin_config,
)
from border_cli.sweep.listing import Sweep
from border_cli.sweep.names import JobFolders
from border_cli.sweep.plan import OUR_LAUNCHER, Plan, RefusedJob
from border_cli.sweep.processes import JobLauncher, LocalProcess, ProcessLauncher
from border_cli.sweep.request import LaunchTerms
from border_cli.system.machine import free_memory, usable_cores

ONE_BY_ONE = "basic"

# Base memory of a training process, not counted in `Needs`: 270 MB for CartPole with two actors.
PROCESS_NBYTES = 256 * 2**20


class Launcher(Protocol):
    """Runs jobs in their folders."""

    def launch(self, jobs: Sequence[Job]) -> None:
        """Returns when all jobs have ended, or when the sweep is stopped."""


def run_sweep(plan: Plan) -> None:
    """Runs the jobs and exits with the status of the sweep."""
    launcher, settings = plan.terms.launcher, plan.terms.launcher_settings
    ours = launcher == OUR_LAUNCHER or launcher in JOB_LAUNCHERS.names()
    if ours and (jobs := settings.get("jobs")) is not None and jobs < 1:
        raise ConfigError(f"hydra.launcher.jobs must be null or at least 1, got {jobs}")
    remote: JobLauncher | None = None
    if launcher in JOB_LAUNCHERS.names():
        remote = JOB_LAUNCHERS.load(launcher)(settings)
        remote.refuse_missing()
    plan, needs = plan.dry_build()
    at_once = remote.at_once(len(plan.jobs)) if remote else _count_parallel(plan, needs)
    sweep = Sweep(plan)
    with _launcher(plan, sweep, at_once, remote) as job_launcher:
        resume_garbage_collection()
        sweep.begin()
        try:
            if plan.jobs:
                for batch in _batches(plan):
                    job_launcher.launch(sweep.with_numbers(batch))
            else:
                _search(plan, sweep, job_launcher)
        except BaseException:  # the table of results is always printed
            sweep.finish()
            raise
    sys.exit(sweep.finish())


@contextmanager
def _launcher(
    plan: Plan, sweep: Sweep, at_once: int, remote: JobLauncher | None
) -> Iterator[Launcher]:
    """Yields the launcher that runs the jobs."""
    launcher = plan.terms.launcher
    terms = LaunchTerms(
        root=str(plan.terms.root),
        at_once=1 if remote else at_once,
        cores=remote.cores if remote else None,
        scheduled=launcher.startswith("submitit"),
    )
    if launcher == ONE_BY_ONE:
        yield SerialLauncher(sweep, terms)
    elif launcher == OUR_LAUNCHER:
        yield ProcessLauncher(LocalProcess, sweep, terms, at_once=at_once, earlier=plan.earlier)
    elif remote:
        with remote.starts(sweep.root) as start:
            yield ProcessLauncher(start, sweep, terms, at_once=at_once, earlier=plan.earlier)
    else:
        yield HydraLauncher(launcher, plan.terms.config, sweep, terms)


def _batches(plan: Plan) -> list[list[Job]]:
    batch_size = plan.terms.config.hydra.sweeper.get("max_batch_size")
    size = batch_size if batch_size and batch_size > 0 else len(plan.jobs)
    return [plan.jobs[start : start + size] for start in range(0, len(plan.jobs), size)]


def _count_parallel(plan: Plan, needs: Sequence[Needs]) -> int:
    """Returns how many jobs run in parallel on this machine."""
    launcher, settings = plan.terms.launcher, plan.terms.launcher_settings
    limit = len(plan.jobs) or usable_cores()
    if launcher == OUR_LAUNCHER:
        return min(limit, settings.get("jobs") or _count_fitting(needs, plan.config))
    if launcher == "joblib":
        n_jobs = settings.get("n_jobs", -1)
        return min(limit, n_jobs if n_jobs > 0 else usable_cores())
    return limit if launcher == "submitit_local" else 1


def _count_fitting(needs: Sequence[Needs], config: RunConfig) -> int:
    """Returns how many parallel jobs the cores and the memory allow; one if they use CUDA."""
    job_nbytes = PROCESS_NBYTES + max((need.nbytes for need in needs), default=0)
    cores = 1 if computes_on_cuda(config) else usable_cores()
    return max(1, min(cores, int(free_memory() // job_nbytes)))


def _search(plan: Plan, sweep: Sweep, job_launcher: Launcher) -> None:
    """Runs the jobs that a Hydra sweeper proposes."""
    task: Any = SweeperTask(plan, sweep, job_launcher)
    config = make_plugin_config(plan.terms.config, sweep.root)
    with open_dict(config):
        config.hydra.launcher = {"_target_": SWEEP_LAUNCHER}
        stops_on_error = plan.config.sweep.on_error == OnError.stop
        if not stops_on_error and config.hydra.sweeper.get("max_failure_rate") == 0:  # Optuna only
            config.hydra.sweeper.max_failure_rate = 1.0
    sweeper = Plugins.instance().instantiate_sweeper(
        hydra_context=make_context(FolderLoader({})),
        task_function=task,
        config=config,
    )
    arguments = [str(override) for override in config.hydra.overrides.task]
    configure_hydra_logging(plan.terms.config, quiet=sweep.quiet)
    try:
        sweeper.sweep(arguments=arguments)
    except ValueError:  # raised by Optuna if all jobs failed and no trial is the best
        if any(row.status == DONE for row in sweep.rows()):
            raise


class SweeperTask:
    """The task function of a Hydra sweeper, called with each batch of proposed jobs."""

    def __init__(self, plan: Plan, sweep: Sweep, job_launcher: Launcher) -> None:
        self._plan = plan
        self._sweep = sweep
        self._job_launcher = job_launcher
        self._tried: Tried = []
        self._places = JobFolders(sweep.root, plan.terms.fixed, named=plan.named)
        self._next = 1 + max((job.number for job in sweep.plan.jobs), default=-1)

    def launch(self, batch: Sequence[Sequence[str]], first: int) -> list[JobReturn]:
        """Runs a batch and returns the result of each job. A refused job counts as failed."""
        folders, jobs = [], []
        for new_number, overrides in enumerate(batch, self._next + first):
            folder = self._places.folder_of(overrides, new_number)
            number = self._sweep.add(new_number, overrides, folder)
            folders.append(folder)
            try:
                job = self._compose_and_check(overrides, number, folder)
            except ConfigError as error:
                self._record_refusal(RefusedJob(number, tuple(overrides), folder, reason_of(error)))
                continue
            with suppress(ConfigError):  # a run exists: return its result to the sweeper
                find_earlier_run(job)
                jobs.append(job)
        if jobs:
            self._job_launcher.launch(jobs)
        return [
            self._job_return(overrides, self._sweep.row_of(folder))
            for overrides, folder in zip(batch, folders, strict=True)
        ]

    def _compose_and_check(self, overrides: Sequence[str], number: int, folder: Path) -> Job:
        terms = self._plan.terms
        (job,) = jobs_of(self._plan.composer, [overrides], terms, number)
        job = replace(job, folder=folder, command=self._plan.command)
        return dry_build_jobs([job], tried_envs=self._tried).jobs[0]

    def _record_refusal(self, job: RefusedJob) -> None:
        """Records the refusal in the folder of the job."""
        if self._plan.terms.skip_invalid:
            self._sweep.skip(job)
            return
        with suppress(RunInUse):
            record_not_begun(job.folder, command=self._plan.command, reason=job.reason)

    def _job_return(self, overrides: Sequence[str], row: JobRow) -> JobReturn:
        """Returns the result of a job to the sweeper: its score, or a failure."""
        result = JobReturn(overrides=overrides, status=JobStatus.COMPLETED)
        if row.status == DONE:
            result.return_value = math.nan if row.score is None else row.score
        else:
            result.status = JobStatus.FAILED
            result.return_value = RunFailed(row.reason or row.status)
        return result
