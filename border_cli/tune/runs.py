"""The runs of a trial: composed and checked like any job, each trained from rung to rung."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from border_cli.config.compose import Composer
from border_cli.config.job import Job
from border_cli.config.sweep import SweepTerms, jobs_of
from border_cli.errors import ConfigError
from border_cli.launch.dry_build import dry_built
from border_cli.launch.needs import refuse_unmet
from border_cli.recorder.read import rows_with
from border_cli.settings.run import AUTO, RunConfig, TrainerConfig
from border_cli.settings.schedule import ENV_STEPS, UPDATES
from border_cli.system.files import METRICS
from border_cli.words import setting

SCORE = "eval/return"


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """How long a run is, and where it is evaluated: at the same places in every trial."""

    unit: str  # max_env_steps, or where none is stepped max_opt_steps
    full: int
    interval: int

    def places(self, steps: int) -> list[int]:
        """Where the evaluations of a run of so many steps are."""
        return [*range(self.interval, steps, self.interval), steps]

    def limited(self, job: Job, steps: int) -> Job:
        """A run that ends after so many steps, but whose schedules follow the full budget."""
        config, trainer = job.config, job.config.trainer
        other = {"max_opt_steps": None, "max_env_steps": None, self.unit: steps}
        every: dict[str, Any] = {"eval_interval": self.interval}
        if not trainer.offline:
            default = TrainerConfig().eval_interval  # which the other one replaces
            every = {"eval_interval": default, "eval_interval_env_steps": self.interval}
        config = replace(
            config,
            agent=trainer.with_steps(config.agent),
            replay_buffer=trainer.with_steps(config.replay_buffer),
            trainer=replace(trainer, **other, **every),
        )
        return replace(job, config=config)


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
        ratio = trainer.samples_per_opt_step or 1
        unit, every = "max_env_steps", trainer.eval_interval_env_steps
        every = every or round(trainer.eval_interval * ratio)
    if full is None or not 1 <= every <= full:
        raise ConfigError(
            f"trainer.{unit} must be set in a study, and its evaluation interval be at least 1 and "
            f"at most that, got {full} and {every}"
        )
    return Budget(unit=unit, full=full, interval=every)


@dataclass(frozen=True, slots=True, kw_only=True)
class Runs:
    """Makes the jobs of trials from their settings."""

    composer: Composer
    terms: SweepTerms
    overrides: Sequence[str]  # of every run
    budget: Budget
    root: Path
    command: Sequence[str]  # as typed

    def jobs(
        self, number: int, settings: Sequence[str], seeds: Iterable[int], folder: Path
    ) -> list[Job]:
        """A job for each seed, checked and built dry; raises ConfigError where these settings are
        refused."""
        of_all = [*self._typed(settings), setting("run_dir", str(self.root)), f"resume={AUTO}"]
        each_typed = [[*of_all, f"seed={seed}"] for seed in seeds]
        made = jobs_of(self.composer, each_typed, self.terms, number)
        built = dry_built(made[:1])
        refuse_unmet(built.needs)
        return [
            replace(
                job,
                number=number,
                folder=folder / f"seed-{job.config.seed}",
                command=tuple(self.command),
                config=replace(job.config, env=built.jobs[0].config.env),  # with action masks
            )
            for job in made
        ]

    def typed(self, settings: Sequence[str]) -> str:
        """The command that repeats the first run of a trial."""
        return shlex.join(["border-train", *self._typed(settings), "seed=0"])

    def _typed(self, settings: Sequence[str]) -> list[str]:
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
