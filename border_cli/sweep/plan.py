"""A sweep before it runs: its jobs, composed and checked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from border_cli.config.compose import Composer
from border_cli.config.job import Job
from border_cli.config.resuming import Finished
from border_cli.config.sweep import SweepTerms
from border_cli.errors import ConfigError
from border_cli.launch.jobs import check_jobs, look
from border_cli.run.layout import refuse_foreign
from border_cli.settings.run import RunConfig
from border_cli.sweep.names import Places, in_common
from border_cli.system.machine import usable_cores

OUR_LAUNCHER = "processes"  # the default of a sweep on two cores or more


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A sweep that was composed and checked."""

    composer: Composer
    terms: SweepTerms
    config: RunConfig  # of its first job, or of all that a sweeper will invent
    jobs: list[Job]  # none where a sweeper invents them
    finished: dict[Path, Finished]  # jobs of which nothing is left to do
    command: tuple[str, ...]  # as typed

    @property
    def named(self) -> bool:
        """Whether folders are named by what differs between the jobs, and not by their numbers."""
        return self.config.run_dir is not None and self.terms.own_names

    @property
    def quiet(self) -> bool:
        return all(each.config.quiet for each in self.jobs) if self.jobs else self.config.quiet


def planned(composer: Composer, overrides: list[str], command: Sequence[str]) -> Plan:
    """The sweep of a command line; raises ConfigError for its first job that is refused."""
    terms = composer.sweep_terms(overrides, OUR_LAUNCHER if usable_cores() > 1 else None)
    refuse_foreign(terms.root)
    if terms.jobs is None:
        jobs, config = [], composer.job(terms.fixed).config
        if config.dry_run:
            raise ConfigError(
                "dry_run=true cannot show the jobs of this sweeper, because it chooses each from "
                "earlier scores: leave out -m and the swept values"
            )
    else:
        jobs = _jobs(composer, terms, command)
        config = jobs[0].config
    found = {job.folder: look(job).finished for job in jobs}
    return Plan(
        composer=composer,
        terms=terms,
        config=config,
        jobs=jobs,
        finished={folder: end for folder, end in found.items() if end is not None},
        command=tuple(command),
    )


def _jobs(composer: Composer, terms: SweepTerms, command: Sequence[str]) -> list[Job]:
    """The jobs of a grid, in their folders."""
    assert terms.jobs is not None
    jobs = composer.jobs(terms.jobs, terms)
    jobs = [replace(job, command=tuple(command)) for job in jobs]
    if jobs[0].config.run_dir is not None and terms.own_names:
        places = Places(terms.root, in_common([job.overrides for job in jobs]))
        jobs = [replace(job, folder=places.folder_of(job.overrides)) for job in jobs]
    check_jobs(composer, jobs)
    return jobs
