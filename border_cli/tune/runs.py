"""The runs of a trial: composed and checked like any job, each trained from rung to rung."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from border_cli.config.compose import Composer
from border_cli.config.job import Job
from border_cli.config.sweep import SweepTerms, jobs_of
from border_cli.errors import ConfigError
from border_cli.launch.dry_build import dry_built
from border_cli.launch.needs import refuse_unmet
from border_cli.recorder.read import rows_with
from border_cli.run.status import RunLock
from border_cli.settings.run import AUTO, RunConfig, TrainerConfig
from border_cli.settings.schedule import ENV_STEPS, UPDATES
from border_cli.system.files import METRICS
from border_cli.words import setting

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

SCORE = "eval/return"
FRESH = 1000  # the first of the winner's fresh seeds


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """How long a run is, and where it is evaluated: at the same places in every trial."""

    unit: str  # max_env_steps, or where none is stepped max_opt_steps
    full: int
    interval: int

    def places(self, steps: int) -> list[int]:
        """Where the evaluations of a run of so many steps are."""
        return [*range(self.interval, steps, self.interval), steps]

    def limited(self, config: RunConfig, steps: int) -> RunConfig:
        """The settings of a run that ends after so many steps, but whose schedules follow the full
        budget."""
        trainer = config.trainer
        own: dict[str, Any] = {"max_opt_steps": None, "max_env_steps": None, self.unit: steps}
        if trainer.offline:
            own["eval_interval"] = self.interval
        else:
            own["eval_interval_env_steps"] = self.interval
            own["eval_interval"] = TrainerConfig().eval_interval  # which the other one replaces
        return replace(
            config,
            agent=trainer.with_steps(config.agent),
            replay_buffer=trainer.with_steps(config.replay_buffer),
            trainer=replace(trainer, **own),
        )


def budget_of(config: RunConfig) -> Budget:
    """The full budget of the runs of a study, in env steps where there are any.

    Raises ConfigError for what ends a run elsewhere, and where the settings say no budget.
    """
    trainer = config.trainer
    for name in ("max_time_s", "stop_at_score", "patience"):
        if (value := getattr(trainer, name)) is not None:
            trainer.refuse(name, value, "must be null in a study: its runs are equally long")
    if "jsonl" not in config.recorder:
        raise ConfigError("recorder must have jsonl in a study, which reads evaluations there")
    full = trainer.steps_of_run(UPDATES if trainer.offline else ENV_STEPS)
    if trainer.offline:
        unit, every = "max_opt_steps", trainer.eval_interval
    else:
        unit, ratio = "max_env_steps", trainer.samples_per_opt_step or 1
        every = trainer.eval_interval_env_steps or round(trainer.eval_interval * ratio)
    if full is None or not 1 <= every <= full:
        raise ConfigError(
            f"trainer.{unit} must be set in a study, and its evaluation interval be at least 1 and "
            f"at most that, got {full} and {every}"
        )
    return Budget(unit=unit, full=full, interval=every)


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """Runs that this command is to train: of a trial to its next rung, or of the winner."""

    trial: FrozenTrial
    settings: Sequence[str]
    rung: int
    seeds: Sequence[int]
    folder: Path
    lock: RunLock  # of the folder: goes with the command, whatever ends that

    @property
    def of_winner(self) -> bool:
        """Whether its score counts for the winner alone."""
        return self.seeds[0] == FRESH


@dataclass(frozen=True, slots=True, kw_only=True)
class Runs:
    """Makes the jobs of trials from their settings."""

    composer: Composer
    terms: SweepTerms
    overrides: Sequence[str]  # of every run
    budget: Budget
    root: Path
    command: Sequence[str]  # as typed

    def jobs(self, training: Training, steps: int) -> list[Job]:
        """A job of so many steps for each seed, checked and built dry; raises ConfigError where the
        settings are refused."""
        of_all = [*self.of_trial(training.settings), setting("run_dir", str(self.root))]
        typed = [[*of_all, f"resume={AUTO}", f"seed={seed}"] for seed in training.seeds]
        made = jobs_of(self.composer, typed, self.terms, training.trial.number)
        built = dry_built(made[:1])
        refuse_unmet(built.needs)
        return [
            replace(
                job,
                number=training.trial.number,
                folder=training.folder / f"seed-{job.config.seed}",
                command=tuple(self.command),
                config=self.budget.limited(
                    replace(job.config, env=built.jobs[0].config.env), steps
                ),
            )
            for job in made
        ]

    def typed(self, settings: Sequence[str]) -> str:
        """The command that repeats the first run of a trial."""
        return shlex.join(["border-train", *self.of_trial(settings), "seed=0"])

    def of_trial(self, settings: Sequence[str]) -> list[str]:
        """All that is typed for a run of these settings, but for its seed."""
        limit = f"trainer.{self.budget.unit}="
        own = [each for each in self.overrides if not each.startswith(limit)]
        return [*own, *settings, f"{limit}{self.budget.full}"]

    def curve(self, folder: Path, steps: int) -> list[float]:
        """The evaluations of a run up to so many steps, [E], at the places of all runs: where
        actors run freely they are made a few steps later. Raises ConfigError for a run without."""
        unit = self.budget.unit.removeprefix("max_")
        rows = [row for row in rows_with(folder / METRICS, SCORE) if row[SCORE] is not None]
        if not rows:
            raise ConfigError(f"{folder} has recorded no finite {SCORE}")
        places = self.budget.places(steps)
        found = np.interp(places, [row[unit] for row in rows], [row[SCORE] for row in rows])
        return [float(each) for each in found]
