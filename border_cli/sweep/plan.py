"""The plan of a sweep: its jobs, composed and checked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from border_cli.checks.check import check_jobs
from border_cli.config.compose import Composer
from border_cli.config.job import Job
from border_cli.config.sweep import SweepTerms, jobs_of, sweep_terms
from border_cli.errors import ConfigError, reason_of
from border_cli.process.monitor import STALL_TIMEOUT_S
from border_cli.run.layout import refuse_foreign
from border_cli.run.run_folder import EarlierRun
from border_cli.settings.run import RunConfig
from border_cli.sweep.names import JobFolders, shared_overrides
from border_cli.system.files import full_path
from border_cli.system.machine import usable_cores

if TYPE_CHECKING:
    from border_cli.checks.needs import Needs

OUR_LAUNCHER = "processes"  # default for sweeps on two or more cores


class RefusedJob(NamedTuple):
    """A job whose settings are refused; skipped with `sweep.skip_invalid`, otherwise failed."""

    number: int
    overrides: tuple[str, ...]
    folder: Path
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A sweep whose jobs are composed and checked."""

    composer: Composer
    terms: SweepTerms
    config: RunConfig  # of the first job, or of the fixed overrides if a sweeper proposes the jobs
    jobs: list[Job]  # empty if a sweeper proposes them
    skipped: list[RefusedJob]  # refused jobs of the same grid
    earlier: dict[Path, EarlierRun]  # folder of a job -> run found in it
    command: tuple[str, ...]  # as typed

    @property
    def named(self) -> bool:
        """True if folders are named by the overrides of their jobs instead of by number."""
        return self.config.run_dir is not None and self.terms.own_names

    @property
    def stall_timeout_s(self) -> float:
        """The longest stall timeout of all jobs."""
        timeouts = (job.config.trainer.stall_timeout_s for job in self.jobs)
        return max(timeouts, default=STALL_TIMEOUT_S)

    def dry_build(self) -> tuple[Plan, Sequence[Needs]]:
        """Runs the dry build of all jobs. Returns the plan and the memory needs of its jobs. With
        `sweep.skip_invalid`, jobs that the dry build refuses move to `skipped`.

        Raises ConfigError for the first refused job if jobs may not be skipped or no job is left.
        """
        # imported late: torch, which a refusal does not need
        from border_cli.checks.dry_build import dry_build_jobs

        refused: dict[int, ConfigError] = {}
        jobs, needs = dry_build_jobs(self.jobs, refused if self.terms.skip_invalid else None)
        if refused and not jobs:
            raise next(iter(refused.values()))
        skipped = [
            RefusedJob(job.number, job.overrides, job.folder, reason_of(refused[job.number]))
            for job in self.jobs
            if job.number in refused
        ]
        return replace(self, jobs=jobs, skipped=sorted([*self.skipped, *skipped])), needs


def plan_sweep(composer: Composer, overrides: list[str], command: Sequence[str]) -> Plan:
    """Plans the sweep of a command line. Raises ConfigError for the first job that is refused,
    unless `sweep.skip_invalid` allows other jobs to run."""
    terms = sweep_terms(composer, overrides, OUR_LAUNCHER if usable_cores() > 1 else None)
    refuse_foreign(terms.root)
    if terms.jobs is None:
        jobs, skipped = list[Job](), list[RefusedJob]()
        config = composer.job(terms.fixed).config
        if config.dry_run:
            raise ConfigError(
                "dry_run=true cannot show the jobs of this sweeper, because it chooses "
                "them by earlier scores: leave out -m and the swept values"
            )
    else:
        jobs, skipped = _compose_grid(composer, terms, terms.jobs, command)
        config = jobs[0].config
    return Plan(
        composer=composer,
        terms=terms,
        config=config,
        jobs=jobs,
        skipped=skipped,
        earlier=check_jobs(jobs, composer),
        command=tuple(command),
    )


def _compose_grid(
    composer: Composer, terms: SweepTerms, grid: list[list[str]], command: Sequence[str]
) -> tuple[list[Job], list[RefusedJob]]:
    """Returns the jobs of a grid with their folders, and the skipped jobs."""
    refused: dict[int, ConfigError] = {}
    jobs = jobs_of(composer, grid, terms, refused=refused if terms.skip_invalid else None)
    if not jobs:
        raise refused[0]
    named = terms.own_names and jobs[0].config.run_dir is not None
    places = JobFolders(terms.root, shared_overrides(grid), named=named)
    for job in jobs:
        if job.folder.parent != full_path(terms.root):
            raise ConfigError(
                f"hydra.sweep.subdir must be a name without a slash, got {job.folder}"
            )
    jobs = [
        replace(
            job,
            command=tuple(command),
            folder=places.folder_of(job.overrides, job.number or 0)
            if terms.own_names
            else job.folder,
        )
        for job in jobs
    ]
    return jobs, [
        RefusedJob(i, tuple(grid[i]), places.folder_of(grid[i], i), reason_of(error))
        for i, error in refused.items()
    ]
