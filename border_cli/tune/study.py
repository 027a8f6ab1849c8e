"""A study in its directory: what it is, what is decided next, and where each trial stands."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import numpy as np
from numpy.typing import NDArray

from border_cli.config.job import Job
from border_cli.errors import ConfigError
from border_cli.launch.jobs import holds_run
from border_cli.run.sweep_folder import alone
from border_cli.system.files import SWEEP_JSON
from border_cli.tune.config import TuneConfig
from border_cli.tune.halving import Score, Standing, Terms, What, counted, next_step, rung_budgets
from border_cli.tune.runs import Budget, Runs
from border_cli.tune.space import Space
from border_cli.tune.store import TrialStore, progress_of
from border_cli.tune.trials import (
    COMPLETE,
    FAILED,
    PRUNED,
    RUNNING,
    STUDY_JSON,
    WAITING,
    Study,
    TrialRow,
    ranked,
    read_study,
    write_study,
    write_trials,
)
from border_cli.words import shortest

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

GROWS = ("id", "command", "trials", "fresh_seeds")  # what may differ of a study that goes on


def described(
    config: TuneConfig, space: Space, base: Job, budget: Budget, overrides: Sequence[str]
) -> Study:
    """The study that a command asks for; `base`: a run of it before any value is chosen."""
    return Study(
        id=uuid4().hex,
        name=Path(config.study).name,
        command=list(base.command),
        overrides=sorted(overrides),
        space=space.content,
        seeds=config.seeds,
        score=config.score.value,
        last_evals=config.last_evals,
        unit=budget.unit,
        budgets=list(
            rung_budgets(
                budget.full,
                rungs=config.rungs,
                reduction=config.reduction,
                interval=budget.interval,
            )
        ),
        trials=config.trials,
        fresh_seeds=config.fresh_seeds,
    )


def begun(root: Path, asked: Study) -> tuple[Study, bool]:
    """The study in its directory, and whether it was there: it goes on then.

    Raises ConfigError where the directory holds something else, or a study of another kind.
    """
    if holds_run(root) or (root / SWEEP_JSON).exists():
        raise ConfigError(f"study={shortest(root)} contains runs that are not a study's")
    root.mkdir(parents=True, exist_ok=True)
    with alone(root):
        there = (root / STUDY_JSON).exists()
        found = read_study(root) if there else asked
        changed = [
            f"  {each.name}: {before} -> {after}"
            for each in fields(Study)
            if (before := getattr(found, each.name)) != (after := getattr(asked, each.name))
            and each.name not in GROWS
        ]
        if changed:
            raise ConfigError(
                f"study={shortest(root)} was begun otherwise, and its trials would not compare:\n"
                + "\n".join([*changed, "Type what it was begun with, or choose another study=DIR"])
            )
        study = replace(asked, id=found.id, trials=max(found.trials, asked.trials))
        write_study(root, study)
        return study, there


@dataclass(frozen=True, slots=True)
class Training:
    """A trial that this command trains to a rung."""

    trial: FrozenTrial
    rung: int
    settings: Sequence[str]
    how: str  # starts, goes on, or resumes: the command that trained it is gone


class Trials:
    """The trials of a study as one command sees and moves them; owned by its main thread."""

    def __init__(
        self,
        study: Study,
        store: TrialStore,
        config: TuneConfig,
        runs: Runs,
        say: Callable[[str], None],
    ) -> None:
        """`say` tells the user what happened to a trial."""
        self.root, self.study, self.store = runs.root, study, store
        self._sampler = config.sampler
        self._runs = runs
        self._say = say
        self._terms = Terms(
            budgets=tuple(study.budgets),
            trials=study.trials,
            reduction=config.reduction,
            risk=config.risk,
            budget=config.max_cost,
        )

    def take(self, space: Space) -> Training | What:
        """What this command trains next: a trial whose command is gone, or what halving says;
        `wait` and `finish` as it does. Trials that it prunes end here."""
        with alone(self.root):
            while True:
                trials = self.store.trials()
                for trial in trials:
                    if not trial.state.is_finished() and self._is_orphaned(trial):
                        return self._training(trial, progress_of(trial).rung, "resumes")
                step = next_step([self._standing(each) for each in trials], self._terms)
                if step.what == What.start:
                    return self._training(self.store.add(space, self._sampler), 0, "starts")
                if step.number is None:
                    return step.what
                trial = trials[step.number]
                rung = progress_of(trial).reached
                if step.what == What.promote:
                    return self._training(trial, rung + 1, "goes on")
                self.store.end(trial, "PRUNED")
                self._say(f"trial {trial.number} is pruned at {self.steps(rung)}")

    def _is_orphaned(self, trial: FrozenTrial) -> bool:
        progress = progress_of(trial)
        if not progress.in_training or progress.owner == self.store.owner:
            return False
        return not progress.owner or self.store.is_gone(progress.owner)

    def _training(self, trial: FrozenTrial, rung: int, how: str) -> Training:
        self.store.update(trial, rung=rung, owner=self.store.owner)
        return Training(trial, rung, progress_of(trial).settings, how)

    def steps(self, rung: int) -> str:
        """`10,000 env steps`."""
        return f"{self.study.budgets[rung]:,} {self.study.unit_name}"

    def reached(self, training: Training, folders: Sequence[Path]) -> None:
        """All runs of a trial have come to its rung."""
        trial, rung = training.trial, training.rung
        curves = [self._runs.curve(each, self.study.budgets[rung]) for each in folders]
        score = float(np.mean([self._counted(each) for each in curves]))
        self.store.report(trial, self.study.budgets[rung], score)
        self.store.update(trial, rung=rung, reached=rung, curves=curves, owner="")
        if rung == len(self.study.budgets) - 1:
            self.store.end(trial, "COMPLETE", score)
        self._say(f"trial {trial.number}: {score:.6g} at {self.steps(rung)}")

    def failed(self, training: Training, reason: str) -> None:
        """A trial has no score."""
        self.store.update(training.trial, reason=reason)
        self.store.end(training.trial, "FAIL")
        self._say(f"trial {training.trial.number} failed: {reason}")

    def winner(self) -> TrialRow | None:
        """The best complete trial, where this command is to train it on fresh seeds; None where
        there is none, or where another command does."""
        with alone(self.root):
            best = next((row for row in ranked(self.rows()) if row.status == COMPLETE), None)
            return best if best and self.store.crown(best.number) else None

    def _counted(self, curve: Sequence[float]) -> list[float]:
        return counted(curve, Score(self.study.score), self.study.last_evals)

    def _standing(self, trial: FrozenTrial) -> Standing:
        progress, ended = progress_of(trial), trial.state.is_finished()
        return Standing(
            number=trial.number,
            samples=tuple(self._sample(trial, rung) for rung in range(progress.reached + 1)),
            busy=progress.in_training and not ended,
            ended=ended,
        )

    def _sample(self, trial: FrozenTrial, rung: int) -> NDArray[np.float64]:
        """The evaluations of a trial that count at a rung, [S, K]; none before the first."""
        num = len(self._runs.budget.places(self.study.budgets[rung])) if rung >= 0 else 0
        return np.array([self._counted(each[:num]) for each in progress_of(trial).curves or []])

    def rows(self) -> list[TrialRow]:
        """All trials as `trials.json` has them, and writes them there. Raises OSError."""
        trials = self.store.trials()
        rows = [self._row(each, trials[0]) for each in trials]
        write_trials(self.root, rows)
        return rows

    def _row(self, trial: FrozenTrial, first: FrozenTrial) -> TrialRow:
        progress, rung = progress_of(trial), progress_of(trial).reached
        sample = self._sample(trial, rung)
        waits = RUNNING if progress.in_training else WAITING
        ended = {"COMPLETE": COMPLETE, "PRUNED": PRUNED, "FAIL": FAILED}
        since = trial.datetime_complete, first.datetime_start
        budget = self.study.budgets[rung] if rung >= 0 else 0
        return TrialRow(
            number=trial.number,
            status=ended.get(trial.state.name, waits),
            reason=progress.reason,
            budget=budget,
            score=float(sample.mean()) if sample.size else None,
            scores=[float(each.mean()) for each in sample],
            steps=budget * self.study.seeds,
            ended_s=(since[0] - since[1]).total_seconds() if since[0] and since[1] else None,
            settings=progress.settings,
            command=self._runs.typed(progress.settings),
        )
