"""The jobs of a command, checked against each other and against what is in their folders, before
anything is built. The meaning of a setting is imported by the refusal that tells it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from border_cli.config.compose import Composer
from border_cli.config.job import Job
from border_cli.config.resuming import Found, found_in, holds_run
from border_cli.errors import ConfigError
from border_cli.registry import ENVS
from border_cli.run.layout import refuse_foreign
from border_cli.run.status import refuse_running
from border_cli.settings.run import AUTO, RunConfig
from border_cli.system.files import SWEEP_JSON
from border_cli.system.machine import unwritable
from border_cli.words import shortest


def check_jobs(composer: Composer, jobs: Sequence[Job]) -> None:
    """Raises ConfigError for the first job without an environment, that resumes what it may not,
    or that cannot write to its folder: another kind of run is there, or another job's."""
    for job in jobs:
        _refuse_without_env(job.config, composer)
        _check_resume(composer, job)
        _refuse_used(job)
        refuse_foreign(job.folder)
    folders = [job.folder for job in jobs]
    if len(set(folders)) < len(folders):
        twice = min(folder for folder in folders if folders.count(folder) > 1)
        raise ConfigError(
            f"several jobs would write to {shortest(twice)}: give each value only once"
        )


def _check_resume(composer: Composer, job: Job) -> None:
    config = job.config
    if composer.run_dir is not None:
        if job.folder != composer.run_dir:
            raise ConfigError(
                f"resume={config.resume} continues the run in {composer.run_dir}: do not set "
                "hydra.run.dir"
            )
    elif config.resume is not None and config.resume != AUTO:
        raise ConfigError(
            f"resume={config.resume}: give the run to resume on the command line, because its "
            "settings replace the config; a file may only contain resume: auto"
        )


def _refuse_without_env(config: RunConfig, composer: Composer) -> None:
    """Training needs an environment; `--cfg job` may show that there is none."""
    if config.env.id is not None:
        return
    named_by = config.env.named_by
    if named_by != "id":
        from border_cli.config.describe import meaning_of

        meaning = meaning_of(type(config.env), named_by)
        raise ConfigError(f"env.{named_by} must be set: {meaning}")
    presets = [each for each in composer.options("env") if each not in ENVS.names()]
    raise ConfigError(
        f"env.id is null: choose an environment, env=NAME with one of {', '.join(presets)}, "
        "or any Gymnasium id with env.id=…"
    )


def _refuse_used(job: Job) -> None:
    refuse_unwritable(shortest(job.folder))
    if job.config.run_dir is None:
        return
    root = Path(job.config.run_dir).expanduser()
    has_sweep, alone = (root / SWEEP_JSON).exists(), job.number is None
    if alone and has_sweep:
        raise ConfigError(
            f"run_dir={root} contains a sweep: choose another, or repeat its command with -m"
        )
    if not alone and holds_run(root):
        raise ConfigError(f"run_dir={root} contains a single run: choose another for a sweep")
    if not alone and has_sweep and job.config.resume is None:
        raise ConfigError(
            f"run_dir={root} already contains a sweep: choose another, or add resume=auto"
        )


def refuse_unwritable(folder: Path) -> None:
    """Raises where a run directory can be neither made nor written to; nothing is left behind."""
    reason = unwritable(folder)
    if reason is not None:
        what = "written to" if os.path.isdir(folder) else "made"  # noqa: PTH112 - never raises
        raise ConfigError(f"run_dir={folder} cannot be {what}: {reason}")


def look(job: Job) -> Found:
    """An earlier run in the folder of a job. It is looked for once more when the job begins, see
    `attempt`.

    Raises ConfigError where a process runs there, or where the run there has other settings.
    """
    refuse_running(job.folder)
    name = "" if job.number is None else f"{job_name(job)}: "
    return found_in(job.folder, job.config, trust=job.trust, job=name)


def job_name(job: Job) -> str:
    """The name of a job in messages."""
    return "the run" if job.number is None else f"job {job.number} ({' '.join(job.overrides)})"
