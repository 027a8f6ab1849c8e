"""What Hydra calls for each job, in the command's own process or in a worker of a launcher."""

from __future__ import annotations

import math
import os
import platform
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from omegaconf import DictConfig, OmegaConf

from border_cli.cli.signals import leaving_to_the_command, saving_before_a_requeue
from border_cli.cli.startup import set_up_threads
from border_cli.cli.training_job import (
    JobContext,
    JobControl,
    Outcome,
    RunJob,
    train_job,
)
from border_cli.config.compose import Composer
from border_cli.config.composition import as_typed
from border_cli.config.imports import homes
from border_cli.config.job import Job
from border_cli.config.sweep_plan import key_and_value, sweep_job
from border_cli.core.config import AUTO, OnError
from border_cli.core.errors import ConfigError, RunFailed, reason_of
from border_cli.core.files import SETTINGS
from border_cli.core.threads import share_cores
from border_cli.run.status import RunInUse, RunLock, read_run, record_failure, refuse_running
from border_cli.run.sweep_folder import add_job, read_stop, write_stop

if TYPE_CHECKING:
    from hydra.core.utils import JobReturn

    from border_cli.cli.processes import JobStarter
    from border_cli.config.resuming import Found
    from border_cli.config.sweep_loader import SweepLoader
    from border_cli.launch.effective import EffectiveSettings

OUTPUT = "output.log"  # what a job in a worker prints


class Planned(NamedTuple):
    """A checked job."""

    job: Job
    found: Found  # in the folder of the job
    effective: EffectiveSettings


def plan(composer: Composer, job: Job) -> Planned:
    """Raises ConfigError where a process runs in the folder of the job, or where the run there has
    other settings. That is decided once more when the job begins, see `attempt`."""
    from border_cli.config.resuming import found_in
    from border_cli.launch.effective import effective_settings

    run_dir = job.folder
    refuse_running(run_dir)
    name = "" if job.number is None else f"job {job.number} ({' '.join(job.overrides)}): "
    found = found_in(run_dir, job.config, trust=composer.trust, job=name)
    return Planned(job, found, effective_settings(job.config))


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepJobs:
    """What all jobs of a sweep have in common, whichever process runs them."""

    root: Path  # absolute
    launcher: str
    failed_value: float | None  # what the sweeper is told of a failed job; None: an exception
    at_once: int = 1  # jobs that share the cores of one machine
    fixed: tuple[str, ...] = ()  # overrides of every job
    quiet: bool = False
    pid: int = 0  # of the command
    host: str = ""

    def label(self, overrides: Sequence[str]) -> str:
        """What tells a job from the others."""
        rest = [each for each in overrides if each not in self.fixed]
        values = dict(map(key_and_value, rest))
        return " ".join(f"{key}={value}" for key, value in values.items())

    @property
    def scheduled(self) -> bool:
        """Whether a scheduler runs the jobs, which may outlive the command."""
        return self.launcher.startswith("submitit")


class Task:
    """The checked settings go to `run_job`, its score to Hydra. Pickled, it is that of a worker.

    A job that was not checked before, because its sweeper invented it or because this is a worker,
    is composed now.
    """

    def __init__(
        self,
        composer: Composer,
        planned: Sequence[Planned],
        run_job: RunJob,
        command: list[str],
        sweep: SweepJobs | None = None,
        starter: JobStarter | None = None,
    ) -> None:
        """`starter`: of the processes of its jobs, where the launcher is one of ours."""
        self._composer = composer
        self._planned = {(each.job.overrides, each.job.number): each for each in planned}
        self._run_job: RunJob | None = run_job
        self._command = command
        self._sweep = sweep
        self._starter = starter

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_planned": {}, "_run_job": None, "_starter": None}

    @property
    def sweep(self) -> SweepJobs:
        """That of its jobs, which there must be."""
        assert self._sweep is not None
        return self._sweep

    @property
    def command(self) -> list[str]:
        """As typed."""
        return self._command

    def planned(self, overrides: Sequence[str], number: int) -> Planned | None:
        """A job as it was checked."""
        return self._planned.get((tuple(overrides), number))

    def in_processes(
        self,
        job_overrides: Sequence[Sequence[str]],
        first: int,
        *,
        loader: SweepLoader,
        config: DictConfig,
    ) -> list[JobReturn]:
        """What our own launchers do: a process for each of these jobs."""
        from border_cli.cli.processes import JobProcesses

        assert self._starter is not None
        return JobProcesses(self, self._starter, loader, config).run(job_overrides, first)

    def adopt(self, planned: Sequence[Planned], run_job: RunJob) -> None:
        """In a process that has been set up for it: what it knows of its job, and who runs it."""
        self._planned = {(each.job.overrides, each.job.number): each for each in planned}
        self._run_job = run_job

    def __call__(self, composed: DictConfig) -> float:
        from hydra.core.hydra_config import HydraConfig

        hydra = HydraConfig.get()
        overrides = as_typed(hydra.overrides.task)
        number = None if OmegaConf.is_missing(hydra.job, "num") else int(hydra.job.num)
        run_dir = Path(hydra.runtime.output_dir)
        if self._sweep is None or number is None:
            return self._run(composed, hydra, overrides, number, run_dir)
        stopped = read_stop(self._sweep.root)
        if stopped is not None:
            return self._failed(f"not started: {stopped}")
        if self._run_job is not None:
            return self._noted(composed, hydra, overrides, number, run_dir)
        with _worker(self._sweep, run_dir):
            return self._noted(composed, hydra, overrides, number, run_dir)

    def _noted(
        self, composed: DictConfig, hydra: Any, overrides: list[str], number: int, run_dir: Path
    ) -> float:
        """Runs a job of a sweep; one that is refused says so in its folder."""
        assert self._sweep is not None
        folder = (
            str(run_dir.relative_to(self._sweep.root))
            if run_dir.is_relative_to(self._sweep.root)
            else None
        )
        if folder is not None:
            add_job(self._sweep.root, sweep_job(number, overrides, folder))
        try:
            return self._run(composed, hydra, overrides, number, run_dir)
        except ConfigError as error:
            with suppress(RunInUse), RunLock(run_dir):
                if not read_run(run_dir):
                    record_failure(run_dir, command=self._command, reason=reason_of(error))
            return self._failed(reason_of(error), error)

    def _run(
        self,
        composed: DictConfig,
        hydra: Any,
        overrides: list[str],
        number: int | None,
        run_dir: Path,
    ) -> float:
        from border_cli.config.saved import modules_of

        planned = self._planned.get((tuple(overrides), number))
        if planned is None:
            job = self._composer.job([*as_typed(hydra.overrides.hydra), *overrides], number)
            job = replace(job, folder=run_dir)
            if self._sweep is not None and (run_dir / SETTINGS).is_file():
                # A scheduler has started it once more: it goes on from where it was.
                job = replace(job, config=replace(job.config, resume=AUTO, run_dir=str(run_dir)))
            planned = plan(self._composer, job)
        job = planned.job
        context = JobContext(
            run_dir=run_dir,
            overrides=overrides,
            sources=list(job.sources),
            command=self._command,
            job_number=number,
            import_paths=homes(modules_of(job.config)),
            trust=self._composer.trust,
            record=_record(composed, hydra),
        )
        if self._run_job is not None:
            outcome = self._run_job(planned.effective, context)
        else:
            sweep = self._sweep.root if self._sweep is not None else None
            control = JobControl(in_worker=True, sweep=sweep)
            with saving_before_a_requeue(control.stop):
                outcome = train_job(
                    planned.effective, context, on_hung=lambda _: None, control=control
                )
        return self._ended(outcome, planned.effective) if isinstance(outcome, Outcome) else outcome

    def _ended(self, outcome: Outcome, effective: EffectiveSettings) -> float:
        """What Hydra is told of a job, and whether another one follows."""
        failed = outcome.status == "failed"
        if failed and self._sweep and effective.config.sweep.on_error == OnError.stop:
            name = f"job {outcome.number}"
            write_stop(self._sweep.root, f"{name} failed (sweep.on_error=stop)")
        if outcome.status != "done":
            return self._failed(outcome.reason)
        return outcome.score

    def _failed(self, reason: str, error: Exception | None = None) -> float:
        """What the sweeper understands as a failure."""
        value = math.nan if self._sweep is None else self._sweep.failed_value
        if value is None:
            raise RunFailed(reason) from error
        return value


def _record(composed: DictConfig, hydra: Any) -> dict[str, str]:
    """What Hydra itself would write into `.hydra`."""
    return {
        "config.yaml": OmegaConf.to_yaml(composed),
        "hydra.yaml": OmegaConf.to_yaml(OmegaConf.create({"hydra": hydra})),
        "overrides.yaml": OmegaConf.to_yaml(hydra.overrides.task),
    }


@contextmanager
def _worker(sweep: SweepJobs, run_dir: Path) -> Iterator[None]:
    """What a command sets up around its job, in the worker of somebody else's launcher."""
    set_up_threads()
    if not sweep.scheduled:
        share_cores(sweep.at_once)
        if sweep.host == platform.node():
            from border_cli.process.child import end_with

            end_with(sweep.pid)
    elif sweep.at_once > 1:
        share_cores(sweep.at_once)
    output = None if sweep.scheduled else run_dir / OUTPUT
    with _printing_to(output), leaving_to_the_command():
        yield


@contextmanager
def _printing_to(path: Path | None) -> Iterator[None]:
    """Within the block what this process prints goes to a file, for workers share a terminal."""
    if path is None:
        yield
        return
    before = [os.dup(1), os.dup(2)]
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        _print_to(file, file)
        yield
    finally:
        _print_to(*before)
        for each in (*before, file):
            os.close(each)


def _print_to(out: int, error: int) -> None:
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os.dup2(out, 1)
    os.dup2(error, 2)
