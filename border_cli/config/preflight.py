"""Everything that refuses a command before it makes a folder."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from border_cli.config.check import refuse_without_env
from border_cli.config.compose import Composer, Job
from border_cli.config.overrides import is_sweep
from border_cli.core.config import AUTO
from border_cli.core.errors import ConfigError
from border_cli.core.files import SWEEP_MARK
from border_cli.core.machine import unwritable
from border_cli.registry import ENVS

RUN_MARKS = ("run.json", ".hydra")


def checked_jobs(composer: Composer, overrides: list[str], *, multirun: bool) -> list[Job]:
    """Composes and checks every job of the command; raises ConfigError for the first bad one.

    Of a sweep whose sweeper invents the jobs as it goes there is nothing to check yet.
    """
    swept = any(is_sweep(each) for each in overrides)
    if not multirun and swept:
        multirun = composer.asks_for_sweep(overrides)
    if not multirun:
        job = composer.job(overrides)
        if not job.multirun or composer.run_dir is not None:
            _check(composer, [job])
            _refuse_used(job)
            return [job]
    expanded = composer.sweep(overrides)
    if expanded is None:
        return []
    jobs = [composer.job(each, number) for number, each in enumerate(expanded)]
    _check(composer, jobs)
    _refuse_used_by_sweep(jobs)
    return jobs


def _check(composer: Composer, jobs: Sequence[Job]) -> None:
    presets = [each for each in composer.options("env") if each not in ENVS.names()]
    for job in jobs:
        refuse_without_env(job.config, presets)
        _check_resume(composer, job)


def _check_resume(composer: Composer, job: Job) -> None:
    config = job.config
    if composer.run_dir is not None:
        if job.multirun or Path(job.folder).absolute() != composer.run_dir:
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


def _refuse_used(job: Job) -> None:
    folder = Path(job.folder)
    refuse_unwritable(folder)
    if (folder / SWEEP_MARK).exists():
        raise ConfigError(
            f"run_dir={folder} contains a sweep: choose another, or repeat its command with -m"
        )
    if job.config.resume is None and _holds_run(folder):
        raise ConfigError(
            f"run_dir={folder} already contains a run: choose another, or add resume=auto"
        )


def _refuse_used_by_sweep(jobs: Sequence[Job]) -> None:
    folders = [Path(job.folder) for job in jobs]
    for job, folder in zip(jobs, folders, strict=True):
        refuse_unwritable(folder)
        if job.config.run_dir is not None:
            _refuse_root(Path(job.config.run_dir).expanduser(), job)
        if job.config.resume is None and _holds_run(folder):
            raise ConfigError(f"{folder} already contains a run: choose another run_dir")
    twice = {folder for folder in folders if folders.count(folder) > 1}
    if twice:
        raise ConfigError(
            f"several jobs would write to {sorted(twice)[0]}: give each value only once"
        )


def _refuse_root(root: Path, job: Job) -> None:
    if _holds_run(root):
        raise ConfigError(f"run_dir={root} contains a single run: choose another for a sweep")
    if job.config.resume is None and (root / SWEEP_MARK).exists():
        raise ConfigError(
            f"run_dir={root} already contains a sweep: choose another, or add resume=auto"
        )


def _holds_run(folder: Path) -> bool:
    return any((folder / mark).exists() for mark in RUN_MARKS)


def refuse_unwritable(folder: Path) -> None:
    """Raises where a run directory can be neither made nor written to; nothing is left behind."""
    reason = unwritable(folder)
    if reason is not None:
        what = "written to" if os.path.isdir(folder) else "made"  # noqa: PTH112 - never raises
        raise ConfigError(f"run_dir={folder} cannot be {what}: {reason}")
