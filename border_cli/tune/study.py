"""A study in its directory: what it is, what is decided next, and where each trial stands."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from border_cli.errors import ConfigError
from border_cli.launch.jobs import holds_run
from border_cli.run.status import RunInUse, RunLock, running
from border_cli.run.sweep_folder import alone
from border_cli.system.files import STUDY_JSON, SWEEP_JSON
from border_cli.tune.config import TuneConfig
from border_cli.tune.halving import Score, Standing, Terms, What, counted, next_step
from border_cli.tune.runs import FRESH, Runs, Training
from border_cli.tune.space import Space
from border_cli.tune.store import TrialStore, progress_of
from border_cli.tune.trials import (
    COMPLETE,
    RUNNING,
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

GROWS = ("id", "command", "trials", "fresh_seeds")  # what may differ in a study that goes on


def begun(root: Path, asked: Study) -> Study:
    """The study in its directory, which goes on where it was there.

    Raises ConfigError where the directory holds something else, or a study of another kind.
    """
    if holds_run(root) or (root / SWEEP_JSON).exists():
        raise ConfigError(f"study={shortest(root)} contains runs that are not a study's")
    root.mkdir(parents=True, exist_ok=True)
    with alone(root):
        found = read_study(root) if (root / STUDY_JSON).exists() else asked
        same = replace(asked, **{name: getattr(found, name) for name in GROWS})
        changed = [name for name in Study.__slots__ if getattr(same, name) != getattr(found, name)]
        if changed:
            raise ConfigError(
                f"study={shortest(root)} was begun with other {', '.join(changed)} (see "
                f"{STUDY_JSON}), and its trials would not compare: type those, or choose another "
                "study=DIR"
            )
        study = replace(asked, id=found.id, trials=max(found.trials, asked.trials))
        write_study(root, study)
        return study


class Trials:
    """The trials of a study as one command sees and moves them; owned by its main thread."""

    def __init__(
        self,
        store: TrialStore,
        config: TuneConfig,
        runs: Runs,
        say: Callable[[str], None],
    ) -> None:
        """`say` tells the user what happened to a trial."""
        self.root, self.study = runs.root, runs.study
        self._store = store
        self._sampler = config.sampler
        self._runs = runs
        self._say = say
        self._crowned = False
        self.fresh: list[float] = []  # scores of the winner on fresh seeds, once they are there
        self._terms = Terms(
            budgets=tuple(self.study.budgets),
            trials=self.study.trials,
            reduction=config.reduction,
            risk=config.risk,
            budget=config.max_cost,
        )

    def take(self, space: Space) -> Training | What:
        """What this command trains next: a trial whose command is gone, what halving says, or at
        the end the winner; `wait` and `finish` as halving does. Trials that it prunes end here."""
        with alone(self.root):
            while True:
                trials = self._store.trials()
                for trial in trials:
                    if self._is_orphaned(trial):
                        return self._begun(trial, progress_of(trial).rung, "resumes")
                step = next_step([self._standing(each) for each in trials], self._terms)
                if step.what == What.start:
                    return self._begun(self._store.add(space, self._sampler), 0, "starts")
                if step.what == What.finish:
                    return self._winner() or What.finish
                if step.number is None:
                    return step.what
                trial = trials[step.number]
                rung = progress_of(trial).reached
                if step.what == What.promote:
                    return self._begun(trial, rung + 1, "goes on")
                self._store.end(trial, "PRUNED")
                self._say(f"trial {trial.number} is pruned at {self.steps(rung)}")

    def _is_orphaned(self, trial: FrozenTrial) -> bool:
        """Whether no command trains a trial that is on its way to a rung."""
        with running(self._folder(trial)) as runs:
            return self._standing(trial).busy and not runs

    def _begun(self, trial: FrozenTrial, rung: int, how: str) -> Training:
        settings = progress_of(trial).settings
        shown = f": {' '.join(settings)}" if how == "starts" else ""
        self._store.update(trial, rung=rung)
        self._say(f"trial {trial.number} {how} to {self.steps(rung)}{shown}")
        seeds = range(self.study.seeds)
        return self._locked(trial, rung, seeds, self._folder(trial))

    def _winner(self) -> Training | None:
        """The best trial on fresh seeds, once, unless another command trains it."""
        best = next((row for row in ranked(self.rows()) if row.status == COMPLETE), None)
        if self._crowned or best is None or not self.study.fresh_seeds:
            return None
        self._crowned = True
        trial = self._store.trials()[best.number]
        seeds = range(FRESH, FRESH + self.study.fresh_seeds)
        folder = self.root / "best" / self._folder(trial).name
        try:
            return self._locked(trial, len(self.study.budgets) - 1, seeds, folder)
        except RunInUse as error:
            self._say(str(error))
            return None

    def _locked(
        self, trial: FrozenTrial, rung: int, seeds: Sequence[int], folder: Path
    ) -> Training:
        lock = RunLock(folder).__enter__()
        return Training(trial=trial, rung=rung, seeds=seeds, folder=folder, lock=lock)

    def _folder(self, trial: FrozenTrial) -> Path:
        return self.root / f"trial-{trial.number:04}"

    def steps(self, rung: int) -> str:
        """`10,000 env steps`."""
        return f"{self.study.budgets[rung]:,} {self.study.steps_name}"

    def reached(self, training: Training) -> None:
        """All these runs have come to their rung."""
        trial, rung = training.trial, training.rung
        folders = [training.folder / f"seed-{seed}" for seed in training.seeds]
        try:
            curves = [self._runs.curve(each, rung) for each in folders]
        except ConfigError as error:
            return self.failed(training, str(error))
        scores = [float(np.mean(self._counted(each))) for each in curves]
        score = float(np.mean(scores))
        if training.of_winner:
            self.fresh = scores
        else:
            self._store.report(trial, self.study.budgets[rung], score)
            self._store.update(trial, rung=rung, reached=rung, curves=curves)
            if rung == len(self.study.budgets) - 1:
                self._store.end(trial, "COMPLETE", score)
        on = " on fresh seeds" if training.of_winner else ""
        self._say(f"trial {trial.number}: {score:.6g} at {self.steps(rung)}{on}")
        training.lock.__exit__()
        return None

    def failed(self, training: Training, reason: str) -> None:
        """A trial has no score."""
        if not training.of_winner:
            self._store.update(training.trial, reason=reason)
            self._store.end(training.trial, "FAIL")
        self._say(f"trial {training.trial.number} failed: {reason}")
        training.lock.__exit__()

    def _counted(self, curve: Sequence[float]) -> list[float]:
        return counted(curve, Score(self.study.score), self.study.last_evals)

    def _standing(self, trial: FrozenTrial) -> Standing:
        progress, ended = progress_of(trial), trial.state.is_finished()
        return Standing(
            number=trial.number,
            samples=tuple(self._sample(trial, rung) for rung in range(progress.reached + 1)),
            busy=progress.rung > progress.reached and not ended,
            ended=ended,
        )

    def _sample(self, trial: FrozenTrial, rung: int) -> NDArray[np.float64]:
        """The evaluations of a trial that count at a rung, [S, K]."""
        num = len(self.study.places(rung))
        return np.array([self._counted(each[:num]) for each in progress_of(trial).curves or []])

    def rows(self) -> list[TrialRow]:
        """All trials as they are, which it writes to the directory, too. Raises OSError."""
        rows = [self._row(each) for each in self._store.trials()]
        write_trials(self.root, rows)
        return rows

    def _row(self, trial: FrozenTrial) -> TrialRow:
        progress, standing = progress_of(trial), self._standing(trial)
        scores = [float(each.mean()) for each in standing.samples[-1]] if standing.samples else []
        budget = self.study.budgets[progress.reached] if scores else 0
        ended = trial.datetime_complete
        state = trial.state.name.lower()
        return TrialRow(
            number=trial.number,
            status=state if ended else RUNNING if standing.busy else WAITING,
            reason=progress.reason,
            budget=budget,
            score=float(np.mean(scores)) if scores else None,
            scores=scores,
            steps=budget * self.study.seeds,
            ended=ended.isoformat(" ", "seconds") if ended else "",
            settings=progress.settings,
            command=shlex.join(["border-train", *self._runs.of(trial), "seed=0"]),
        )
