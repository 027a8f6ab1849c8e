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


def check_jobs(jobs: Sequence[Job], composer: Composer | None = None) -> dict[Path, EarlierRun]:
    """All that is checked before anything is built; `dry_built` comes next.

    Raises ConfigError for the first job without an environment, that resumes what it may not, or
    that cannot use its folder: it is in use, or has another kind of run, another job's, or one with
    other settings. Returns the earlier run in the folder of each job.
    """
    for job in jobs:
        check_job(job, composer)
    folders = [job.folder for job in jobs]
    if len(set(folders)) < len(folders):
        twice = min(folder for folder in folders if folders.count(folder) > 1)
        raise ConfigError(
            f"several jobs would write to {shortest(twice)}: give each value only once"
        )
    return {job.folder: look(job) for job in jobs}


def check_job(job: Job, composer: Composer | None = None) -> None:
    """Checks a job but for an earlier run in its folder. `composer` has composed it; a caller in
    Python has none."""
    if composer is not None:
        _refuse_without_env(job.config, composer)
        _check_resume(job, composer)
    RunFolder(job.folder).refuse_unwritable()
    if job.config.run_dir is not None:
        _refuse_other_kind(job, Path(job.config.run_dir).expanduser())


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
    """Training needs an environment; `--cfg job` may show that there is none."""
    if config.env.id is not None:
        return
    named_by = config.env.named_by
    if named_by != "id":
        # imported late: for a refusal alone
        from border_cli.config.describe import meaning_of

        meaning = meaning_of(type(config.env), named_by)
        raise ConfigError(f"env.{named_by} must be set: {meaning}")
    presets = [each for each in composer.options("env") if each not in ENVS.names()]
    raise ConfigError(
        f"env.id is null: choose an environment, env=NAME with one of {', '.join(presets)}, "
        "or any Gymnasium id with env.id=…"
    )


def _refuse_other_kind(job: Job, root: Path) -> None:
    """Raises where `run_dir` has a sweep and the job is none of it, or the other way round."""
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
