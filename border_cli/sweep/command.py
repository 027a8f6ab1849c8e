"""A sweep, from its command line to the exit status of the command.

The jobs of a grid are one batch, or as many as `hydra.sweeper.max_batch_size` says; other sweepers
propose a batch after another. A batch is composed and checked, its jobs are written into their
folders, and a launcher runs them there. How they ended is read from the folders.
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

from border_cli.checks.check import look
from border_cli.checks.dry_build import Tried, dry_built
from border_cli.checks.needs import Needs
from border_cli.config.job import Job
from border_cli.config.sweep import jobs_of
from border_cli.errors import ConfigError, RunFailed, reason_of
from border_cli.hydra_plugin import SWEEP_LAUNCHER
from border_cli.launch.build import computes_on_cuda
from border_cli.process.startup import collect_from_here
from border_cli.registry import JOB_LAUNCHERS
from border_cli.run.lock import RunInUse
from border_cli.run.status import DONE, record_not_begun
from border_cli.run.sweep_folder import JobRow
from border_cli.settings.run import OnError, RunConfig
from border_cli.sweep.launchers import (
    FolderLoader,
    InThisProcess,
    OfHydra,
    context_of,
    for_plugins,
    log_as_hydra,
)
from border_cli.sweep.listing import Sweep
from border_cli.sweep.names import Places
from border_cli.sweep.plan import OUR_LAUNCHER, Plan, Skipped
from border_cli.sweep.processes import InProcesses, JobLauncher, LocalProcess
from border_cli.sweep.request import Terms
from border_cli.system.machine import free_memory, usable_cores

ONE_BY_ONE = "basic"

# Of a process that trains, besides what is counted: CartPole with two actors takes 270 MB.
PROCESS_NBYTES = 256 * 2**20


class Launcher(Protocol):
    """Runs jobs in their folders."""

    def launch(self, jobs: Sequence[Job]) -> None:
        """Returns when each of them has ended, or none begins any more."""


def run_sweep(plan: Plan) -> None:
    """Runs the jobs and leaves with the status of the sweep."""
    launcher, settings = plan.terms.launcher, plan.terms.launcher_settings
    ours = launcher == OUR_LAUNCHER or launcher in JOB_LAUNCHERS.names()
    if ours and (jobs := settings.get("jobs")) is not None and jobs < 1:
        raise ConfigError(f"hydra.launcher.jobs must be null or at least 1, got {jobs}")
    elsewhere: JobLauncher | None = None
    if launcher in JOB_LAUNCHERS.names():
        elsewhere = JOB_LAUNCHERS.load(launcher)(settings)
        elsewhere.refuse_missing()
    plan, needs = plan.dry_built()
    at_once = elsewhere.at_once(len(plan.jobs)) if elsewhere else _at_once(plan, needs)
    sweep = Sweep(plan)
    with _launcher(plan, sweep, at_once, elsewhere) as runs:
        collect_from_here()
        sweep.begin()
        try:
            if plan.jobs:
                for batch in _batches(plan):
                    runs.launch(sweep.numbered(batch))
            else:
                _search(plan, sweep, runs)
        except BaseException:  # whatever it is, the table is made from the folders
            sweep.finish()
            raise
    sys.exit(sweep.finish())


@contextmanager
def _launcher(
    plan: Plan, sweep: Sweep, at_once: int, elsewhere: JobLauncher | None
) -> Iterator[Launcher]:
    """Who runs the jobs."""
    launcher = plan.terms.launcher
    terms = Terms(
        root=str(plan.terms.root),
        at_once=1 if elsewhere else at_once,
        cores=elsewhere.cores if elsewhere else None,
        scheduled=launcher.startswith("submitit"),
    )
    if launcher == ONE_BY_ONE:
        yield InThisProcess(sweep, terms)
    elif launcher == OUR_LAUNCHER:
        yield InProcesses(LocalProcess, sweep, terms, at_once=at_once, earlier=plan.earlier)
    elif elsewhere:
        with elsewhere.starts(sweep.root) as start:
            yield InProcesses(start, sweep, terms, at_once=at_once, earlier=plan.earlier)
    else:
        yield OfHydra(launcher, plan.terms.config, sweep, terms)


def _batches(plan: Plan) -> list[list[Job]]:
    asked = plan.terms.config.hydra.sweeper.get("max_batch_size")
    most = asked if asked and asked > 0 else len(plan.jobs)
    return [plan.jobs[first : first + most] for first in range(0, len(plan.jobs), most)]


def _at_once(plan: Plan, needs: Sequence[Needs]) -> int:
    """How many jobs share this machine at a time."""
    launcher, settings = plan.terms.launcher, plan.terms.launcher_settings
    most = len(plan.jobs) or usable_cores()
    if launcher == OUR_LAUNCHER:
        return min(most, settings.get("jobs") or _fitting(needs, plan.config))
    if launcher == "joblib":
        asked = settings.get("n_jobs", -1)
        return min(most, asked if asked > 0 else usable_cores())
    return most if launcher == "submitit_local" else 1


def _fitting(needs: Sequence[Needs], config: RunConfig) -> int:
    """How many jobs cores and memory allow at a time."""
    each = PROCESS_NBYTES + max((need.nbytes for need in needs), default=0)
    cores = 1 if computes_on_cuda(config) else usable_cores()
    return max(1, min(cores, int(free_memory() // each)))


def _search(plan: Plan, sweep: Sweep, runs: Launcher) -> None:
    """Has a sweeper of Hydra's propose the jobs."""
    proposed: Any = Proposed(plan, sweep, runs)
    config = for_plugins(plan.terms.config, sweep.root)
    with open_dict(config):
        config.hydra.launcher = {"_target_": SWEEP_LAUNCHER}
        stops = plan.config.sweep.on_error == OnError.stop
        if not stops and config.hydra.sweeper.get("max_failure_rate") == 0:  # Optuna's
            config.hydra.sweeper.max_failure_rate = 1.0
    sweeper = Plugins.instance().instantiate_sweeper(
        hydra_context=context_of(FolderLoader({})),
        task_function=proposed,
        config=config,
    )
    arguments = [str(each) for each in config.hydra.overrides.task]
    log_as_hydra(plan.terms.config, quiet=sweep.quiet)
    try:
        sweeper.sweep(arguments=arguments)
    except ValueError:  # by Optuna, which looks for its best trial where every job has failed
        if any(row.status == DONE for row in sweep.rows()):
            raise


class Proposed:
    """The task of a sweeper of Hydra's, called with each batch of jobs that it proposes."""

    def __init__(self, plan: Plan, sweep: Sweep, runs: Launcher) -> None:
        self._plan = plan
        self._sweep = sweep
        self._runs = runs
        self._tried: Tried = []
        self._places = Places(sweep.root, plan.terms.fixed, named=plan.named)
        self._next = 1 + max((each.number for each in sweep.plan.jobs), default=-1)

    def launch(self, batch: Sequence[Sequence[str]], first: int) -> list[JobReturn]:
        """Runs a batch and tells how each job ended; one that is refused has failed."""
        folders, jobs = [], []
        for new, overrides in enumerate(batch, self._next + first):
            folder = self._places.folder_of(overrides, new)
            number = self._sweep.add(new, overrides, folder)
            folders.append(folder)
            try:
                job = self._checked(overrides, number, folder)
            except ConfigError as error:
                self._refused(Skipped(number, tuple(overrides), folder, reason_of(error)))
                continue
            with suppress(ConfigError):  # a run is there: the sweeper is told how that one ended
                look(job)
                jobs.append(job)
        if jobs:
            self._runs.launch(jobs)
        return [
            self._returned(overrides, self._sweep.row_of(folder))
            for overrides, folder in zip(batch, folders, strict=True)
        ]

    def _checked(self, overrides: Sequence[str], number: int, folder: Path) -> Job:
        terms = self._plan.terms
        (job,) = jobs_of(self._plan.composer, [overrides], terms, number)
        job = replace(job, folder=folder, command=self._plan.command)
        return dry_built([job], known=self._tried).jobs[0]

    def _refused(self, job: Skipped) -> None:
        """Says so in the folder of the job."""
        if self._plan.terms.skip_invalid:
            self._sweep.skip(job)
            return
        with suppress(RunInUse):
            record_not_begun(job.folder, command=self._plan.command, reason=job.reason)

    def _returned(self, overrides: Sequence[str], row: JobRow) -> JobReturn:
        """The end of a job in the sweeper's terms: its score, or a failure."""
        returned = JobReturn(overrides=overrides, status=JobStatus.COMPLETED)
        if row.status == DONE:
            returned.return_value = math.nan if row.score is None else row.score
        else:
            returned.status = JobStatus.FAILED
            returned.return_value = RunFailed(row.reason or row.status)
        return returned
