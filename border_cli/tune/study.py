"""A study in its directory: what it is, what is decided next, and where each trial stands."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import numpy as np

from border_cli.config.job import Job
from border_cli.errors import ConfigError
from border_cli.launch.jobs import holds_run
from border_cli.run.status import read_run
from border_cli.run.sweep_folder import alone
from border_cli.system.files import SWEEP_JSON
from border_cli.tune.config import TuneConfig
from border_cli.tune.halving import Score, Standing, Terms, What, counted, next_step, rung_budgets
from border_cli.tune.space import Space
from border_cli.tune.store import REASON, SETTINGS, TrialStore, progress_of
from border_cli.tune.trial_runs import Budget, TrialRuns
from border_cli.tune.trials import (
    COMPLETE,
    FAILED,
    PRUNED,
    RUNNING,
    STUDY_JSON,
    WAITING,
    Study,
    TrialRow,
    read_study,
    write_study,
    write_trials,
)
from border_cli.words import shortest

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

GROWS = ("command", "trials", "fresh_seeds")  # of a study that goes on


@dataclass(frozen=True, slots=True)
class Training:
    """A trial that this command trains to a rung."""

    number: int
    rung: int
    settings: Sequence[str]
    resumed: bool = False  # because the command that trained it is gone


def described(
    config: TuneConfig, space: Space, base: Job, budget: Budget, overrides: Sequence[str]
) -> Study:
    """The study that a command asks for; `base`: a run of it with no value chosen yet."""
    return Study(
        id=uuid4().hex,
        name=Path(config.study).name,
        command=base.command,
        agent=base.config.agent.option or "",
        env=base.config.env.option or "",
        overrides=tuple(overrides),
        space=space.content,
        seeds=config.seeds,
        score=config.score.value,
        last_evals=config.last_evals,
        unit=budget.unit,
        budgets=rung_budgets(
            budget.full, rungs=config.rungs, reduction=config.reduction, interval=budget.interval
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
        if not (root / STUDY_JSON).exists():
            write_study(root, asked)
            return asked, False
        found = read_study(root)
        others = [
            each.name
            for each in fields(Study)
            if each.name not in ("id", *GROWS)
            and _comparable(getattr(found, each.name)) != _comparable(getattr(asked, each.name))
        ]
        if others:
            listed = "\n".join(
                f"  {name}: {_shown(found, name)} -> {_shown(asked, name)}" for name in others
            )
            raise ConfigError(
                f"study={shortest(root)} was begun otherwise, and its trials would not compare:\n"
                f"{listed}\nType what it was begun with, or choose another study=…"
            )
        trials = max(found.trials, asked.trials)
        study = replace(asked, id=found.id, trials=trials)
        write_study(root, study)
        return study, True


def _comparable(value: object) -> object:
    return sorted(value) if isinstance(value, tuple) else value


def _shown(study: Study, name: str) -> str:
    value = getattr(study, name)
    return " ".join(map(str, value)) if isinstance(value, tuple) else str(value)


class Trials:
    """The trials of a study as one command sees and moves them; owned by its main thread."""

    def __init__(
        self,
        study: Study,
        store: TrialStore,
        config: TuneConfig,
        runs: TrialRuns,
        *,
        say: Callable[[str], None],
    ) -> None:
        """`say` tells the user what happened to a trial."""
        self.root, self.study, self.store = runs.root, study, store
        self._config = config
        self._runs = runs
        self._say = say
        self._score = Score(study.score)
        self._terms = Terms(
            budgets=study.budgets,
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
                    if not trial.state.is_finished() and self.store.orphaned(trial):
                        return self._hold(trial, progress_of(trial).rung, resumed=True)
                step = next_step([self._standing(each) for each in trials], self._terms)
                if step.what == What.start:
                    return self._hold(self.store.add(space, self._config.sampler), 0)
                if step.number is None:
                    return step.what
                rung = progress_of(trials[step.number]).reached
                if step.what == What.promote:
                    return self._hold(trials[step.number], rung + 1)
                self.store.prune(step.number, f"at {self.steps(rung)}")
                self._say(f"trial {step.number} is pruned at {self.steps(rung)}")

    def _hold(self, trial: FrozenTrial, rung: int, *, resumed: bool = False) -> Training:
        self.store.hold(trial, rung)
        return Training(trial.number, rung, trial.user_attrs[SETTINGS], resumed)

    def winner(self) -> TrialRow | None:
        """The best complete trial, where this command is to train it on fresh seeds; None where
        there is none, or where another command does."""
        with alone(self.root):
            best = max(
                (row for row in self.rows() if row.status == COMPLETE),
                key=lambda row: row.score or -math.inf,
                default=None,
            )
            return best if best and self.store.crown(best.number) else None

    def scores(self, folders: Sequence[Path]) -> list[float]:
        """The score of each of these runs at the full budget."""
        curves = [self._runs.curve(each, self.study.budgets[-1]) for each in folders]
        return [float(np.mean(self._counted(each))) for each in curves]

    def steps(self, rung: int) -> str:
        return f"{self.study.budgets[rung]:,} {self.study.unit_name}"

    def reached(self, training: Training, folders: Sequence[Path]) -> str:
        """All runs of a trial have come to its rung; says what it has scored."""
        steps = self.study.budgets[training.rung]
        curves = [self._runs.curve(each, steps) for each in folders]
        score = float(np.mean([self._counted(each) for each in curves]))
        if not math.isfinite(score):
            raise ConfigError("its score is not a finite number")
        self.store.reached(training.number, training.rung, curves, score, steps)
        if training.rung == len(self.study.budgets) - 1:
            self.store.complete(training.number, score)
        return f"{score:.6g} at {self.steps(training.rung)}"

    def _counted(self, curve: Sequence[float]) -> list[float]:
        return counted(curve, self._score, self.study.last_evals)

    def _standing(self, trial: FrozenTrial) -> Standing:
        progress = progress_of(trial)
        return Standing(
            number=trial.number,
            samples=tuple(self._sample(trial, rung) for rung in range(progress.reached + 1)),
            busy=progress.in_training and not trial.state.is_finished(),
            ended=trial.state.is_finished(),
        )

    def _sample(self, trial: FrozenTrial, rung: int) -> np.ndarray:
        """The evaluations of a trial that count at a rung, [S, K]."""
        num = len(self._runs.budget.places(self.study.budgets[rung]))
        return np.array([self._counted(each[:num]) for each in progress_of(trial).curves])

    def rows(self) -> list[TrialRow]:
        """All trials as `trials.csv` has them."""
        return [self._row(each) for each in self.store.trials()]

    def write(self) -> list[TrialRow]:
        """Rewrites `trials.csv`; its rows. Raises OSError."""
        rows = self.rows()
        write_trials(self.root, rows)
        return rows

    def _row(self, trial: FrozenTrial) -> TrialRow:
        progress, rung = progress_of(trial), progress_of(trial).reached
        sample = self._sample(trial, rung) if rung >= 0 else np.empty((0, 0))
        facts = [read_run(each) for each in self.folder(trial.number).glob("seed-*")]
        settings = tuple(trial.user_attrs[SETTINGS])
        ended = trial.datetime_complete
        return TrialRow(
            number=trial.number,
            status=_STATUS.get(trial.state.name, RUNNING if progress.in_training else WAITING),
            budget=self.study.budgets[rung] if rung >= 0 else 0,
            score=float(sample.mean()) if sample.size else None,
            scores=tuple(float(each) for each in sample.mean(axis=1)) if sample.size else (),
            steps=sum(_number(each, self._runs.budget.unit) for each in facts),
            seconds=sum(float(each.get("duration_s") or 0.0) for each in facts),
            ended="" if ended is None else ended.strftime("%Y-%m-%dT%H:%M:%S"),
            reason=trial.user_attrs.get(REASON, ""),
            values=_values(settings),
            settings=settings,
            command=self._runs.typed(settings),
        )

    def folder(self, number: int) -> Path:
        """Where the runs of a trial are."""
        return self.root / f"trial-{number:04}"


_STATUS = {"COMPLETE": COMPLETE, "PRUNED": PRUNED, "FAIL": FAILED}


def _number(facts: Mapping[str, object], unit: str) -> int:
    found = facts.get(unit.removeprefix("max_"))
    return found if isinstance(found, int) else 0


def _values(settings: Sequence[str]) -> dict[str, str]:
    pairs = (each.partition("=") for each in settings)
    return {key: value for key, _, value in pairs}


def winner_folder(root: Path, number: int) -> Path:
    """Where the runs of the winner on fresh seeds are."""
    return root / "best" / f"trial-{number:04}"
