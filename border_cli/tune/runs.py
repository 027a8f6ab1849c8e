"""The runs of a trial: composed and checked like any job, each trained from rung to rung."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from border_cli.checks.dry_build import dry_built
from border_cli.config.compose import Composer
from border_cli.config.job import Job
from border_cli.config.sweep import SweepTerms, jobs_of
from border_cli.errors import ConfigError
from border_cli.recorder.read import rows_with
from border_cli.run.lock import RunLock
from border_cli.run.removal import remove_run
from border_cli.run.status import DONE, read_run
from border_cli.settings.run import AUTO, ReplayRatioConfig, RunConfig, TrainerConfig
from border_cli.settings.schedule import ENV_STEPS, UPDATES
from border_cli.system.files import METRICS
from border_cli.tune.trials import Study
from border_cli.words import setting

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

SCORE = "eval/return"
FAILURES = ("save_failures", "recorder_failures")  # of run.json
ENDS = ("max_time_s", "stop_at_score", "patience")  # of runs that are not equally long then
FRESH = 1000  # the first of the winner's fresh seeds


def without_tuned_ends(
    composer: Composer, overrides: Sequence[str], trainer: TrainerConfig
) -> list[str]:
    """Overrides that take away what a tuned file would end a run with before its limit; `trainer`
    has the settings without them."""
    ends = [name for name in ENDS if getattr(trainer, name) is not None]
    if not ends or "~tuned" in overrides:
        return []
    bare = composer.job([*overrides, "~tuned"]).config.trainer
    return [f"trainer.{name}=null" for name in ends if getattr(bare, name) is None]


def length_of(config: RunConfig) -> tuple[str, int, int]:
    """How long the runs of a study are: the limit, in env steps where there are any, its value, and
    the steps between two evaluations.

    Raises ConfigError for what ends a run elsewhere, and where the settings say no length.
    """
    trainer = config.trainer
    for name in ENDS:
        if (value := getattr(trainer, name)) is not None:
            trainer.refuse(name, value, "must be null in a study: its runs are equally long")
    if "jsonl" not in config.recorder:
        raise ConfigError("recorder must have jsonl in a study, which reads evaluations there")
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
    """Runs that this command trains: of a trial to a rung, or of the winner."""

    trial: FrozenTrial
    rung: int
    settings: Sequence[str]  # the overrides that its values make
    folders: Mapping[int, Path]  # by seed
    lock: RunLock  # of their folder; it goes with the command, whatever ends that
    jobs: dict[Path, Job] = field(default_factory=dict)  # those that have not come to the rung

    @property
    def of_winner(self) -> bool:
        """Whether the seeds are fresh ones."""
        return FRESH in self.folders


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialRuns:
    """Makes the jobs of trials from their settings."""

    composer: Composer
    terms: SweepTerms
    overrides: Sequence[str]  # of every run
    study: Study
    root: Path

    def jobs(self, training: Training) -> dict[Path, Job]:
        """A job for each seed, to the rung, checked and built dry; raises ConfigError where the
        settings are refused."""
        of_all = [*self.typed(training.settings), setting("run_dir", str(self.root))]
        typed = [[*of_all, f"resume={AUTO}", f"seed={seed}"] for seed in training.folders]
        made = jobs_of(self.composer, typed, self.terms, training.trial.number)
        [first] = dry_built(made[:1]).jobs  # which knows of action masks
        return {
            folder: replace(
                job,
                number=training.trial.number,
                folder=folder,
                command=tuple(self.study.command),
                config=self._limited(replace(job.config, env=first.config.env), training.rung),
            )
            for folder, job in zip(training.folders.values(), made, strict=True)
        }

    def _limited(self, config: RunConfig, rung: int) -> RunConfig:
        """The settings of a run that ends at a rung, but whose schedules follow the full budget."""
        study, trainer = self.study, config.trainer
        own: dict[str, Any] = {"max_opt_steps": None, "max_env_steps": None}
        own |= {study.unit: study.budgets[rung], "eval_interval": study.interval}
        if not trainer.offline:
            own["eval_interval"] = TrainerConfig().eval_interval  # which the other one replaces
            own["eval_interval_env_steps"] = study.interval
        return replace(
            config,
            agent=trainer.with_steps(config.agent),
            replay_buffer=trainer.with_steps(config.replay_buffer),
            trainer=replace(trainer, **own),
        )

    def typed(self, settings: Sequence[str]) -> list[str]:
        """All that is typed for a run with these settings, but for its seed."""
        limit = f"trainer.{self.study.unit}="
        own = [each for each in self.overrides if not each.startswith(limit)]
        return [*own, *settings, f"{limit}{self.study.budgets[-1]}"]

    def is_done(self, folder: Path, rung: int) -> bool:
        """Whether the run in a folder has come to a rung. One that was to go on, but whose process
        was killed before it began, has come to the rung before; one whose evaluations or checkpoint
        are missing is removed, and starts over."""
        facts, steps = read_run(folder), self.study.unit.removeprefix("max_")
        if facts.get("status") != DONE:
            return False
        if any(map(facts.get, FAILURES)):
            remove_run(folder)
            return False
        return bool(facts[steps] >= self.study.budgets[rung])

    def curve(self, folder: Path, rung: int) -> list[float]:
        """The evaluations of a run up to a rung, [E], at the places of all runs: where actors run
        freely they are made a few steps later. Raises ConfigError for a run without."""
        unit = self.study.unit.removeprefix("max_")
        rows = [row for row in rows_with(folder / METRICS, SCORE) if row[SCORE] is not None]
        if not rows:
            raise ConfigError(f"{folder} has recorded no finite {SCORE}")
        at, scores = zip(*((row[unit], row[SCORE]) for row in rows), strict=True)
        return [float(each) for each in np.interp(self.study.places(rung), at, scores)]
