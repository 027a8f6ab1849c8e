"""The jobs of a command, against each other and against what is in their folders: refused before
anything is built, found to be finished, or begun as an attempt in a folder that is then its own.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from border_cli.config.job import Job
from border_cli.config.resolved import begin_attempt, resolved_yaml
from border_cli.errors import CheckpointError, ConfigError, NotBegun, reachable
from border_cli.registry import CALLBACKS, ENVS
from border_cli.run.finding import resumable
from border_cli.run.layout import refuse_foreign, remove_attempt
from border_cli.run.status import RunLock, read_run, refuse_running
from border_cli.settings.run import AUTO, Objective, RunConfig, TrainerConfig
from border_cli.system.files import SETTINGS, SWEEP_JSON
from border_cli.system.machine import unwritable
from border_cli.words import shortest

if TYPE_CHECKING:
    from border_cli.config.compose import Composer
    from border_cli.config.resuming import Change

RUN_MARKS = ("run.json", ".hydra")
FINISHED = "done"  # the status of a run that has reached a limit
BY_CALLBACK = "callback "  # begins the exit reason of a run that a callback has ended
_LIMITS = ("max_opt_steps", "max_env_steps", "max_time_s", "stop_at_score", "patience")


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

    Raises ConfigError where a process runs there, where the run there has other settings, and
    where something else has the name of a file of ours: of a job of a sweep, its folder too.
    """
    if job.number is not None and job.folder.is_symlink():
        raise ConfigError(f"{job.folder} is a link, and the folder of a job must be none")
    refuse_foreign(job.folder)
    refuse_running(job.folder)
    name = "" if job.number is None else f"{job_name(job)}: "
    return found_in(job.folder, job.config, trust=job.trust, job=name)


def holds_run(folder: Path) -> bool:
    """Whether an attempt has begun in the directory."""
    return any((folder / mark).exists() for mark in RUN_MARKS)


@dataclass(frozen=True, slots=True)
class Finished:
    """A run that has reached a limit, so that nothing is left to do."""

    score: float
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The attempt that another one continues; all as it is here where there is none."""

    resumes: bool = False  # from a checkpoint; else the run starts, or starts over
    changed: tuple[str, ...] = ()  # `trainer.max_opt_steps: 10000 -> 20000`
    finished: Finished | None = None
    goes_on: bool = False  # although it was finished


def found_in(run_dir: Path, config: RunConfig, *, trust: bool = False, job: str = "") -> Found:
    """The earlier run that a run with these settings finds in its directory; nothing is written.

    Raises ConfigError where it would start in the place of another, or where that one's settings
    may not change so. `job`: see `refuse_fixed`.
    """
    if config.resume is None and holds_run(run_dir):
        raise ConfigError(
            f"{shortest(run_dir)} already contains a run: choose another run_dir, or add "
            "resume=auto"
        )
    if config.resume not in (None, AUTO):
        from border_cli.config.resuming import refuse_no_run

        refuse_no_run(run_dir)
    if config.resume is None or not (run_dir / SETTINGS).is_file():
        return Found()
    done = read_run(run_dir).get("status") == FINISHED
    resumes = done or bool(resumable(run_dir))  # what is finished is never removed
    if config.resume == AUTO and not resumes:
        return Found()  # nothing is lost by other settings
    changed: list[Change] = []
    limits = config.trainer
    if (run_dir / SETTINGS).read_text(encoding="utf-8") != resolved_yaml(config):
        from border_cli.config.resuming import changes, refuse_fixed
        from border_cli.config.saved import load_resolved

        saved = load_resolved(run_dir, trust=trust, plays=False, typed=config.imports)
        changed, limits = changes(saved, config), saved.trainer
        refuse_fixed(changed, run_dir, job=job)
    others = any(each.key.partition(".")[0] == CALLBACKS.group for each in changed)
    end = finished(run_dir, config, limits, other_callbacks=others)
    if done and end is None and not resumable(run_dir):
        raise CheckpointError(f"{run_dir} is finished, but has no checkpoint to resume from")
    return Found(
        resumes=resumes,
        changed=tuple(map(str, changed)),
        finished=end,
        goes_on=done and end is None,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One attempt of a run, in whose directory nobody else runs."""

    run_dir: Path
    lock: RunLock
    found: Found
    record: Mapping[str, str]
    settings: str  # the text of `.hydra/resolved.yaml`

    def confirm(self) -> None:
        """Saves the settings of a run that is resumed, once nothing refuses it any more."""
        if self.found.resumes:
            begin_attempt(self.run_dir, self.record, self.settings)


@contextmanager
def attempt(
    run_dir: Path, config: RunConfig, record: Mapping[str, str], *, trust: bool = False
) -> Iterator[Attempt]:
    """Within the block the directory is this process's own: what was found there stays true.

    A new run removes what an attempt without a checkpoint left and saves its settings, with the
    `record` of how it was asked for: files of `.hydra` and texts. Raises RunInUse where another
    process runs there, and as `found_in`: another may have run there since these settings were
    checked. Nothing is changed then.
    """
    settings = resolved_yaml(config)
    refuse_foreign(run_dir)
    with RunLock(run_dir) as lock:
        try:
            with reachable(ConfigError):
                found = found_in(run_dir, config, trust=trust)
        except ConfigError as error:
            raise NotBegun(str(error)) from error
        if not found.resumes:
            remove_attempt(run_dir)
            begin_attempt(run_dir, record, settings)
        yield Attempt(run_dir=run_dir, lock=lock, found=found, record=record, settings=settings)


def finished(
    run_dir: Path, config: RunConfig, saved: TrainerConfig, *, other_callbacks: bool = False
) -> Finished | None:
    """The end of the run in a folder, unless the limit that ended it has grown since, or a callback
    had ended it and there are others now."""
    facts = read_run(run_dir)
    if facts.get("status") != FINISHED:
        return None
    limit = str(facts.get("exit_reason")).partition(" ")[0]
    ended_by = [limit] if limit in _LIMITS else _LIMITS
    by_callback = str(facts.get("exit_reason")).startswith(BY_CALLBACK)
    if any(_grew(each, saved, config.trainer) for each in ended_by):
        return None
    if by_callback and other_callbacks:
        return None
    score = facts.get("best_score" if config.objective == Objective.best else "final_score")
    with_score = f" with score {score:.10g}" if score is not None else ""
    what, more = facts.get("exit_reason"), "increase a limit to continue"
    if limit in _LIMITS:
        what = f"{limit}={getattr(saved, limit)} reached"
        more = f"increase trainer.{limit} to continue"
        if limit == "stop_at_score":  # there may be no better score
            more = "set trainer.max_opt_steps in its place to continue"
    elif by_callback:
        more = "change the callback or increase a limit to continue"
    return Finished(
        float(score) if score is not None else -math.inf,
        f"{shortest(run_dir)} is finished{with_score}: {what}; {more}",
    )


def _grew(limit: str, saved: TrainerConfig, now: TrainerConfig) -> bool:
    before, after = getattr(saved, limit), getattr(now, limit)
    if before is None:  # it has ended nothing
        return False
    patient = limit == "stop_at_score" and now.stop_evals > saved.stop_evals
    return after is None or after > before or patient


def job_name(job: Job) -> str:
    """The name of a job in messages."""
    return "the run" if job.number is None else f"job {job.number} ({' '.join(job.overrides)})"
