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
from border_cli.system.files import SWEEP_JSON
from border_cli.words import shortest

if TYPE_CHECKING:
    from border_cli.config.compose import Composer


def check_jobs(composer: Composer, jobs: Sequence[Job]) -> None:
    """Raises ConfigError for the first job without an environment, that resumes what it may not,
    or that cannot write to its folder: another kind of run is there, or another job's."""
    for job in jobs:
        _refuse_without_env(job.config, composer)
        _check_resume(composer, job)
        _refuse_used(job)
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
        # imported late, as below: for refusals and resumes alone
        from border_cli.config.describe import meaning_of

        meaning = meaning_of(type(config.env), named_by)
        raise ConfigError(f"env.{named_by} must be set: {meaning}")
    presets = [each for each in composer.options("env") if each not in ENVS.names()]
    raise ConfigError(
        f"env.id is null: choose an environment, env=NAME with one of {', '.join(presets)}, "
        "or any Gymnasium id with env.id=…"
    )


def _refuse_used(job: Job) -> None:
    RunFolder(job.folder).refuse_unwritable()
    if job.config.run_dir is None:
        return
    root = Path(job.config.run_dir).expanduser()
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


def look(job: Job) -> EarlierRun:
    """The earlier run in the folder of a job. It is looked for once more when the job begins, see
    `attempt`.

    Raises ConfigError where a process runs there, where the run there has other settings, and
    where something else has the name of a file of ours: of a job of a sweep, its folder too.
    """
    if job.in_sweep and job.folder.is_symlink():
        raise ConfigError(f"{job.folder} is a link, and the folder of a job must be none")
    folder = RunFolder(job.folder)
    folder.refuse_in_use()
    return earlier_run(job, folder)
