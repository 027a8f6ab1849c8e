"""The jobs of a command, composed and checked, and refused where their folders are used or cannot
be written. What only sweeps need imports numpy, hence is imported by them alone."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from border_cli.config.compose import Composer
from border_cli.config.describe import meaning_of
from border_cli.config.job import Job
from border_cli.config.overrides import is_sweep
from border_cli.config.sweep import SweepTerms
from border_cli.core.config import AUTO, RunConfig
from border_cli.core.errors import ConfigError
from border_cli.core.files import SWEEP_MARK
from border_cli.core.machine import unwritable, usable_cores
from border_cli.core.words import shortest
from border_cli.registry import ENVS

OUR_LAUNCHER = "processes"  # the default of a sweep on two cores or more
RAY_LAUNCHER = "ray"


def checked_jobs(
    composer: Composer,
    overrides: list[str],
    *,
    multirun: bool,
    progress: Callable[[int], object] = lambda _: None,
) -> tuple[list[Job], SweepTerms | None]:
    """Composes and checks every job of the command; raises ConfigError for the first bad one.

    A job alone has no terms. `progress` is told how many jobs are composed by now. A sweeper that
    invents its jobs as it goes has none to check yet.
    """
    swept = any(is_sweep(each) for each in overrides)
    if not multirun and swept:
        multirun = composer.asks_for_sweep(overrides)
    if not multirun:
        job = composer.job(overrides)
        asks = composer.asks_for_sweep(overrides)
        if not asks or composer.run_dir is not None:
            _check_jobs(composer, [job], asks_for_sweep=asks)
            _refuse_used(job)
            return [job], None
    from border_cli.config.sweep_plan import with_folders

    terms = composer.sweep_terms(overrides, OUR_LAUNCHER if usable_cores() > 1 else None)
    if terms.jobs is None:
        return [], terms
    jobs = with_folders(composer.jobs(terms.jobs, terms, progress=progress), terms)
    _check_jobs(composer, jobs, asks_for_sweep=True)
    _refuse_used_by_sweep(jobs)
    return jobs, terms


def _check_jobs(composer: Composer, jobs: Sequence[Job], *, asks_for_sweep: bool) -> None:
    presets = [each for each in composer.options("env") if each not in ENVS.names()]
    for job in jobs:
        _refuse_without_env(job.config, presets)
        _check_resume(composer, job, asks_for_sweep=asks_for_sweep)


def _check_resume(composer: Composer, job: Job, *, asks_for_sweep: bool) -> None:
    config = job.config
    if composer.run_dir is not None:
        if asks_for_sweep or job.folder != composer.run_dir:
            raise ConfigError(
                f"resume={config.resume} continues the run in {composer.run_dir}: do not set "
                "hydra.mode or hydra.run.dir"
            )
    elif config.resume is not None and config.resume != AUTO:
        raise ConfigError(
            f"resume={config.resume}: give the run to resume on the command line, because its "
            "settings replace the config; a file may only contain resume: auto"
        )
    elif config.resume == AUTO and config.run_dir is None:
        raise ConfigError("resume=auto needs run_dir=DIR")


def _refuse_without_env(config: RunConfig, presets: Sequence[str]) -> None:
    """Training needs an environment; `--cfg job` may show that there is none."""
    named_by = config.env.named_by
    if config.env.id is None and named_by != "id":
        meaning = meaning_of(type(config.env), named_by)
        raise ConfigError(f"env.{named_by} must be set: {meaning}")
    if config.env.id is None:
        listed = ", ".join(presets)
        raise ConfigError(
            f"env.id is null: choose an environment, env=NAME with one of {listed}, "
            "or any Gymnasium id with env.id=…"
        )


def _refuse_used(job: Job) -> None:
    named = job.config.run_dir
    folder = Path(named).expanduser() if named else shortest(job.folder)
    refuse_unwritable(folder)
    if (folder / SWEEP_MARK).exists():
        raise ConfigError(
            f"run_dir={folder} contains a sweep: choose another, or repeat its command with -m"
        )


def _refuse_used_by_sweep(jobs: Sequence[Job]) -> None:
    folders = [job.folder for job in jobs]
    for job, folder in zip(jobs, folders, strict=True):
        refuse_unwritable(shortest(folder))
        if job.config.run_dir is not None:
            _refuse_root(Path(job.config.run_dir).expanduser(), job)
    twice = {folder for folder in folders if folders.count(folder) > 1}
    if twice:
        raise ConfigError(
            f"several jobs would write to {shortest(sorted(twice)[0])}: give each value only once"
        )


def _refuse_root(root: Path, job: Job) -> None:
    from border_cli.config.resuming import holds_run

    if holds_run(root):
        raise ConfigError(f"run_dir={root} contains a single run: choose another for a sweep")
    if job.config.resume is None and (root / SWEEP_MARK).exists():
        raise ConfigError(
            f"run_dir={root} already contains a sweep: choose another, or add resume=auto"
        )


def refuse_unwritable(folder: Path) -> None:
    """Raises where a run directory can be neither made nor written to; nothing is left behind."""
    reason = unwritable(folder)
    if reason is not None:
        what = "written to" if os.path.isdir(folder) else "made"  # noqa: PTH112 - never raises
        raise ConfigError(f"run_dir={folder} cannot be {what}: {reason}")
