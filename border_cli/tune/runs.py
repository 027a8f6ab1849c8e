"""The runs of a trial. They are composed and checked like any job, and trained rung by rung."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from border_cli.checks.dry_build import dry_build_jobs
from border_cli.config.compose import Composer
from border_cli.config.job import Job
from border_cli.config.sweep import SweepTerms, jobs_of
from border_cli.errors import ConfigError
from border_cli.recorder.read import rows_with
from border_cli.run.lock import RunLock
from border_cli.run.removal import remove_run
from border_cli.run.status import DONE, read_run
from border_cli.settings.run import AUTO, ReplayRatioConfig, RunConfig, SweepConfig, TrainerConfig
from border_cli.settings.schedule import ENV_STEPS, UPDATES
from border_cli.system.files import METRICS
from border_cli.tune.trials import Study
from border_cli.words import format_override

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

SCORE = "eval/return"
FAILURES = ("save_failures", "recorder_failures")  # keys of run.json
ENDS = ("max_time_s", "stop_at_score", "patience")  # settings that make runs differ in length
FRESH = 1000  # first seed of the winner's fresh seeds


def without_tuned_ends(
    composer: Composer, overrides: Sequence[str], trainer: TrainerConfig
) -> list[str]:
    """Returns overrides that reset settings of a tuned file that could end a run before its limit.
    `trainer` contains the settings as composed without these overrides."""
    ends = [name for name in ENDS if getattr(trainer, name) is not None]
    if not ends or "~tuned" in overrides:
        return []
    bare = composer.job([*overrides, "~tuned"]).config.trainer
    return [f"trainer.{name}=null" for name in ends if getattr(bare, name) is None]


def length_of(config: RunConfig) -> tuple[str, int, int]:
    """Returns the length of a study's runs: the setting that limits it (env steps unless the runs
    are offline), its value, and the steps between two evaluations.

    Raises ConfigError if another setting can end a run, or if the length, the evaluations or the
    jsonl recorder are missing.
    """
    trainer = config.trainer
    for name in ENDS:
        if (value := getattr(trainer, name)) is not None:
            trainer.refuse(name, value, "must be null in a study: its runs have the same length")
    if "jsonl" not in config.recorder:
        raise ConfigError("recorder must have jsonl in a study, which reads its evaluations")
    if isinstance(trainer, ReplayRatioConfig):
        unit, counter, ratio = "max_env_steps", ENV_STEPS, trainer.samples_per_opt_step or 1
        every = trainer.eval_interval_env_steps or round(trainer.eval_interval * ratio)
    else:
        unit, counter, every = "max_opt_steps", UPDATES, trainer.eval_interval
    full = trainer.steps_of_run(counter)
    if full is None or every < 1:
        raise ConfigError(f"trainer.{unit} and an evaluation interval must be set in a study")
    return unit, full, every


@dataclass(slots=True)
class Training:
    """Runs that this command trains: either those of a trial, up to a rung, or the winner's."""

    trial: FrozenTrial
    rung: int
    settings: Sequence[str]  # overrides with the values of the trial
    folders: Mapping[int, Path]  # seed -> run directory
    lock: RunLock  # lock of the trial's directory; released however the command ends
    jobs: dict[Path, Job] = field(default_factory=dict)  # jobs that have not reached the rung

    @property
    def of_winner(self) -> bool:
        """True for the winner's runs on fresh seeds."""
        return FRESH in self.folders


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialRuns:
    """Composes the jobs of trials from their settings, and reads their results."""

    composer: Composer
    terms: SweepTerms
    overrides: Sequence[str]  # overrides of every run
    study: Study
    root: Path

    def jobs(self, training: Training) -> dict[Path, Job]:
        """Returns a job per seed that ends at the rung, all checked, the first dry-built. Raises
        ConfigError if the settings are refused."""
        common = [
            *self.overrides_for(training.settings),
            format_override("run_dir", str(self.root)),
        ]
        batch = [[*common, f"resume={AUTO}", f"seed={seed}"] for seed in training.folders]
        composed = jobs_of(self.composer, batch, self.terms, training.trial.number)
        [first] = dry_build_jobs(composed[:1]).jobs  # the dry build detects action masks
        return {
            folder: replace(
                job,
                number=training.trial.number,
                folder=folder,
                command=tuple(self.study.command),
                config=self._limit_to_rung(
                    replace(job.config, env=first.config.env), training.rung
                ),
            )
            for folder, job in zip(training.folders.values(), composed, strict=True)
        }

    def _limit_to_rung(self, config: RunConfig, rung: int) -> RunConfig:
        """Returns the settings of a run that ends at a rung, with schedules for the full budget."""
        study, trainer = self.study, config.trainer
        changes: dict[str, Any] = {"max_opt_steps": None, "max_env_steps": None}
        changes |= {study.unit: study.budgets[rung], "eval_interval": study.interval}
        if not trainer.offline:
            changes["eval_interval"] = TrainerConfig().eval_interval  # not used, see the next line
            changes["eval_interval_env_steps"] = study.interval
        return replace(
            config,
            agent=trainer.with_steps(config.agent),
            replay_buffer=trainer.with_steps(config.replay_buffer),
            trainer=replace(trainer, **changes),
            sweep=SweepConfig(),  # a failed run stops no other
        )

    def overrides_for(self, settings: Sequence[str]) -> list[str]:
        """Returns all overrides of a run with these settings, except its seed."""
        limits = ("trainer.max_opt_steps=", "trainer.max_env_steps=")  # converted to the budget
        overrides = [override for override in self.overrides if not override.startswith(limits)]
        return [*overrides, *settings, f"trainer.{self.study.unit}={self.study.budgets[-1]}"]

    def is_done(self, folder: Path, rung: int) -> bool:
        """Returns whether the run in a folder has reached a rung. `run.json` describes the previous
        rung if the run was killed before it could resume. A run with a failed write of a checkpoint
        or of any recorder is removed and starts over."""
        facts, steps = read_run(folder), self.study.unit.removeprefix("max_")
        if facts.get("status") != DONE:
            return False
        if any(map(facts.get, FAILURES)):
            remove_run(folder)
            return False
        return bool(facts[steps] >= self.study.budgets[rung])

    def curve(self, folder: Path, rung: int) -> list[float]:
        """Returns the evaluations of a run up to a rung, [E], interpolated at `Study.places`, since
        asynchronous runs evaluate a few steps later. Raises ConfigError if there are none."""
        unit = self.study.unit.removeprefix("max_")
        rows = [row for row in rows_with(folder / METRICS, SCORE) if row[SCORE] is not None]
        if not rows:
            raise ConfigError(f"{folder} has recorded no finite {SCORE}")
        steps, scores = zip(*((row[unit], row[SCORE]) for row in rows), strict=True)
        return [float(score) for score in np.interp(self.study.places(rung), steps, scores)]
