"""Checks the jobs of a command against each other and against their run directories."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from border_cli.config.job import Job
from border_cli.errors import ConfigError
from border_cli.launch.attempt import earlier_run
from border_cli.registry import ENVS
from border_cli.run.run_folder import EarlierRun, RunFolder
from border_cli.settings.run import AUTO, RunConfig
from border_cli.system.files import SWEEP_JSON, expand_user
from border_cli.words import shortest

if TYPE_CHECKING:
    from border_cli.config.compose import Composer


def check_jobs(jobs: Sequence[Job], composer: Composer | None = None) -> dict[Path, EarlierRun]:
    """Checks all jobs before anything is built, and returns the earlier run in each job's folder.

    Raises ConfigError for the first job that may not resume, that has no environment (with
    `composer`; otherwise `dry_build_jobs`, the next check, finds that), or that cannot use its
    folder: it is in use, or contains another kind of run, the run of another job, or a run with
    other settings. Raises CheckpointError if a finished run would continue but has no checkpoint.
    """
    for job in jobs:
        check_job(job, composer)
    folders = [job.folder for job in jobs]
    if len(set(folders)) < len(folders):
        duplicate = min(folder for folder in folders if folders.count(folder) > 1)
        raise ConfigError(
            f"several jobs would write to {shortest(duplicate)}: give each value only once"
        )
    return {job.folder: find_earlier_run(job) for job in jobs}


def check_job(job: Job, composer: Composer | None = None) -> None:
    """Checks a job, except for an earlier run in its folder. `composer` is the one that composed
    the job, or None for jobs created in Python."""
    if composer is not None:
        _refuse_without_env(job.config, composer)
        _check_resume(job, composer)
    RunFolder(job.folder).refuse_unwritable()
    if job.config.run_dir is not None:
        _refuse_other_kind(job, expand_user(job.config.run_dir))


def find_earlier_run(job: Job) -> EarlierRun:
    """Returns the earlier run in the folder of a job. `start_attempt` checks the folder again
    when the job starts.

    Raises ConfigError if a process is running there, if the run has other settings or `resume` is
    not set, or if something else has the name of one of our files (in a sweep, also the folder).
    Raises CheckpointError if a finished run would continue but has no checkpoint.
    """
    if job.in_sweep and job.folder.is_symlink():
        raise ConfigError(f"{job.folder} is a symbolic link; a job needs a real directory")
    folder = RunFolder(job.folder)
    folder.refuse_in_use()
    return earlier_run(job, folder)


def _check_resume(job: Job, composer: Composer) -> None:
    resume = job.config.resume
    if composer.run_dir is not None:
        if job.folder != composer.run_dir:
            raise ConfigError(
                f"resume={resume} continues the run in {composer.run_dir}: do not set hydra.run.dir"
            )
    elif resume is not None and resume != AUTO:
        raise ConfigError(
            f"resume={resume}: give the run to resume on the command line, because its settings "
            "replace the config; a file may only contain resume: auto"
        )


def _refuse_without_env(config: RunConfig, composer: Composer) -> None:
    """Raises ConfigError if no environment is set; `--cfg job` does not need one."""
    if config.env.id is not None:
        return
    presets = [preset for preset in composer.options("env") if preset not in ENVS.names()]
    raise ConfigError(
        f"env.{config.env.named_by} is null: choose an environment, env=NAME with one of "
        f"{', '.join(presets)}, or any Gymnasium id with env.id=…"
    )


def _refuse_other_kind(job: Job, root: Path) -> None:
    """Raises if `run_dir` contains a sweep and the job is not part of one, or vice versa."""
    has_sweep = (root / SWEEP_JSON).exists()
    if has_sweep and not job.in_sweep:
        raise ConfigError(
            f"run_dir={root} contains a sweep: choose another, or repeat its command with -m"
        )
    if job.in_sweep and RunFolder(root).has_run:
        raise ConfigError(f"run_dir={root} contains a single run: choose another for a sweep")
    if job.in_sweep and has_sweep and job.config.resume is None:
        raise ConfigError(
            f"run_dir={root} already contains a sweep: choose another, or add resume=auto"
        )
