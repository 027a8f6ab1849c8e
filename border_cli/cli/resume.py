"""Whether a job goes on with the run in its folder, and what may be different then."""

from __future__ import annotations

import math
import shlex
from dataclasses import dataclass
from pathlib import Path

from border_cli.config.changes import changes, refuse_fixed
from border_cli.config.compose import Composer, Job
from border_cli.config.frozen import resolved_yaml
from border_cli.config.imports import modules_of_a_run
from border_cli.config.job import Continuation
from border_cli.config.preflight import AUTO
from border_cli.config.saved import modules_of, refuse_strange_modules, saved_settings
from border_cli.core.config import Objective, RunConfig, TrainerConfig
from border_cli.core.errors import CheckpointError
from border_cli.core.files import SETTINGS
from border_cli.core.words import setting, shell_command, shortest
from border_cli.run.finding import resumable
from border_cli.run.layout import refuse_denied
from border_cli.run.status import NEEDED_TO_RESUME, RunInUse, import_paths, read_run, running

FINISHED = "done"
_LIMITS = ("max_opt_steps", "max_env_steps", "max_time_s", "stop_at_score")


def has_checkpoint(run_dir: Path) -> bool:
    """Whether a checkpoint stands there that looks complete."""
    return bool(resumable(run_dir))


def refuse_running(run_dir: Path) -> None:
    """Two processes would write the same files. Where it cannot be told, the lock decides."""
    with running(run_dir) as runs:
        facts = read_run(run_dir) if runs else {}
    if runs:
        raise RunInUse(run_dir, facts if {"pid", "host"} <= facts.keys() else {})


def continuation_of(composer: Composer, job: Job) -> Continuation | None:
    """What a job that asks to resume would go on with; None where it starts.

    Raises ConfigError where that runs just now, or has settings that may not change.
    """
    run_dir, config = Path(job.folder).absolute(), job.config
    if config.resume is None or not (run_dir / SETTINGS).is_file():
        return None
    refuse_denied(run_dir)
    refuse_running(run_dir)
    done = read_run(run_dir, needed=NEEDED_TO_RESUME).get("status") == FINISHED
    if config.resume == AUTO and not done and not has_checkpoint(run_dir):
        return None  # nothing is lost by other settings
    found = Continuation(trainer=config.trainer)
    if (run_dir / SETTINGS).read_text(encoding="utf-8") != resolved_yaml(config):
        found = _compared(composer, job, run_dir)
    if done and finished(run_dir, config, found.trainer) is None and not has_checkpoint(run_dir):
        raise CheckpointError(f"{run_dir} is finished, but has no checkpoint to resume from")
    return found


def _compared(composer: Composer, job: Job, run_dir: Path) -> Continuation:
    """Reads the saved settings and refuses what may not differ from them."""
    recorded = import_paths(run_dir)
    with modules_of_a_run(run_dir, recorded, trust=composer.trust):
        if not composer.trust:
            refuse_strange_modules(run_dir / SETTINGS, recorded, modules_of(job.config))
        saved = saved_settings(run_dir, composer)
    found = changes(saved, job.config)
    number = "" if job.number is None else f"job {job.number} ({' '.join(job.overrides)}): "
    init_from = shlex.quote(setting("init_from", str(shortest(run_dir))))
    new_run = f"{shell_command('border-train')} {init_from} …"
    refuse_fixed(found, shortest(run_dir) / SETTINGS, job=number, new_run=new_run)
    return Continuation(trainer=saved.trainer, changed=tuple(map(str, found)))


@dataclass(frozen=True, slots=True)
class Finished:
    """A run that has reached its budget, so that there is nothing to go on with."""

    score: float
    message: str


def finished(run_dir: Path, config: RunConfig, saved: TrainerConfig) -> Finished | None:
    """The end of the run in a folder, unless the limit that ended it has grown since."""
    facts = read_run(run_dir)
    if facts.get("status") != FINISHED:
        return None
    limit = str(facts.get("exit_reason")).partition(" ")[0]
    ended_by = [limit] if limit in _LIMITS else _LIMITS
    if any(_grew(each, saved, config.trainer) for each in ended_by):
        return None
    score = facts.get("best_score" if config.objective == Objective.best else "final_score")
    with_score = f" with score {score}" if score is not None else ""
    what, more = facts.get("exit_reason"), "increase a limit to continue"
    if limit in _LIMITS:
        what = f"{limit}={getattr(saved, limit)} reached"
        more = f"increase trainer.{limit} to continue"
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
