"""The runs of a trial: composed and checked like any job, each trained from rung to rung."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path

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
UNITS = {"max_env_steps": "env_steps", "max_opt_steps": "opt_steps"}  # of rows of metrics


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """How long a run is, and where it is evaluated: at the same places in every trial."""

    unit: str  # max_env_steps, or where none is stepped max_opt_steps
    full: int
    interval: int

    @property
    def name(self) -> str:
        """`env steps` or `updates`."""
        return ENV_STEPS if self.unit == "max_env_steps" else UPDATES

    def places(self, steps: int) -> list[int]:
        """Where the evaluations of a run of so many steps are."""
        return [*range(self.interval, steps, self.interval), steps]

    def override(self) -> str:
        """The limit as it is typed."""
        return f"trainer.{self.unit}={self.full}"

    def limited(self, config: RunConfig, steps: int) -> RunConfig:
        """The settings of a run that ends after so many steps, but whose schedules follow the full
        budget."""
        trainer = config.trainer
        limits = dict.fromkeys(("max_opt_steps", "max_env_steps"))
        every = {
            "eval_interval_env_steps": None if trainer.offline else self.interval,
            "eval_interval": self.interval if trainer.offline else _default("eval_interval"),
        }
        return replace(
            config,
            agent=trainer.with_steps(config.agent),
            replay_buffer=trainer.with_steps(config.replay_buffer),
            trainer=replace(trainer, **{**limits, self.unit: steps, **every}),
        )


def _default(name: str) -> int:
    return next(int(each.default) for each in fields(TrainerConfig) if each.name == name)


def budget_of(config: RunConfig) -> Budget:
    """The full budget of the runs of a study, in env steps where there are any.

    Raises ConfigError for what ends a run elsewhere, and where the settings say no budget.
    """
    trainer = config.trainer
    for name in ("max_time_s", "stop_at_score", "patience"):
        value = getattr(trainer, name)
        if value is not None:
            trainer.refuse(name, value, "must be null in a study: its runs are equally long")
    unit, counter = ("max_opt_steps", UPDATES)
    every = trainer.eval_interval
    if not trainer.offline:
        unit, counter = ("max_env_steps", ENV_STEPS)
        ratio = trainer.samples_per_opt_step or 1.0
        every = trainer.eval_interval_env_steps or round(every * ratio)
    full = trainer.steps_of_run(counter)
    if full is None:
        trainer.refuse(unit, None, "must be set in a study without samples_per_opt_step")
        raise AssertionError
    if every < 1 or every > full:
        raise ConfigError(
            f"trainer.eval_interval must be at least 1, and at most the budget of {full:,} {counter}"
        )
    if "jsonl" not in config.recorder:
        raise ConfigError("recorder must have jsonl in a study, which reads evaluations there")
    return Budget(unit=unit, full=full, interval=every)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialRuns:
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
        of_all = [f"run_dir={_text(self.root)}", f"resume={AUTO}", self.budget.override()]
        seeds = list(seeds)
        made = jobs_of(
            self.composer,
            [[*self.overrides, *settings, *of_all, f"seed={seed}"] for seed in seeds],
            self.terms,
            number,
        )
        jobs, needs = dry_built(made[:1])
        refuse_unmet(needs)
        masks = jobs[0].config.env
        return [
            replace(
                job,
                number=number,
                folder=folder / f"seed-{seed}",
                command=tuple(self.command),
                config=replace(job.config, env=masks),
            )
            for job, seed in zip(made, seeds, strict=True)
        ]

    def typed(self, settings: Sequence[str]) -> str:
        """The command that repeats the run of a trial with seed 0."""
        words = [*self.overrides, *settings, self.budget.override(), "seed=0"]
        return shlex.join(["border-train", *words])

    def curve(self, folder: Path, steps: int) -> list[float]:
        """The evaluations of a run up to so many steps, [E], at the places of all runs: actors
        that run freely are evaluated a few steps off them. Raises ConfigError where there are
        none."""
        rows = rows_with(folder / METRICS, SCORE)
        at = [row[UNITS[self.budget.unit]] for row in rows if row[SCORE] is not None]
        values = [row[SCORE] for row in rows if row[SCORE] is not None]
        if not values:
            raise ConfigError(f"{folder} has recorded no evaluation")
        return [float(each) for each in np.interp(self.budget.places(steps), at, values)]


def _text(root: Path) -> str:
    return setting("run_dir", str(root)).partition("=")[2]
