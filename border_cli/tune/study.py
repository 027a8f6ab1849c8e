"""A study in its directory: what it is, what is decided next, and where each trial stands."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from border_cli.errors import ConfigError, RunFailed
from border_cli.launch.jobs import holds_run
from border_cli.run.status import RunInUse, running
from border_cli.run.sweep_folder import alone
from border_cli.system.files import STUDY_JSON, SWEEP_JSON
from border_cli.tune.config import TuneConfig
from border_cli.tune.halving import Score, Standing, Terms, What, counted, next_step
from border_cli.tune.runs import FRESH, Runs, Training
from border_cli.tune.space import Space
from border_cli.tune.store import TrialStore, progress_of
from border_cli.tune.trials import (
    RUNNING,
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

MOST_FAILED = 3  # trials before any has a score: then it is not their values that are wrong
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
        self, store: TrialStore, config: TuneConfig, runs: Runs, say: Callable[[str], None]
    ) -> None:
        """`say` tells the user what happened to a trial."""
        self.root, self.study = runs.root, runs.study
        self.fresh: list[float] = []  # scores of the winner on fresh seeds, once they are there
        self._crowned = False
        self._mine: set[int] = set()  # trials that this command trains
        self._store = store
        self._sampler = config.sampler
        self._runs = runs
        self._say = say
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
                standings = [self._standing(each) for each in trials]
                for trial, standing in zip(trials, standings, strict=True):
                    if self._is_orphaned(trial, standing):
                        return self._trained(trial, progress_of(trial).rung, "resumes")
                step = next_step(standings, self._terms)
                if step.what == What.start:
                    return self._trained(self._store.add(space, self._sampler), 0, "starts")
                if step.what == What.finish:
                    return self._winner(trials) or step.what
                if step.number is None:
                    return step.what
                trial, rung = trials[step.number], len(standings[step.number].samples)
                if step.what == What.promote:
                    return self._trained(trial, rung, "goes on")
                self._store.end(trial, "PRUNED")
                self._say(f"trial {trial.number} is pruned at {self._steps(rung - 1)}")

    def _is_orphaned(self, trial: FrozenTrial, standing: Standing) -> bool:
        """Whether no command trains a trial that is on its way to a rung, or about to end."""
        ends = len(standing.samples) == len(self.study.budgets) and not standing.ended
        with running(self._folder(trial)) as runs:  # None: there are no locks
            trained = trial.number in self._mine if runs is None else runs
            return (standing.busy or ends) and not trained

    def _trained(self, trial: FrozenTrial, rung: int, how: str) -> Training:
        self._store.update(trial, rung=rung)
        values = f": {' '.join(progress_of(trial).settings)}" if how == "starts" else ""
        self._say(f"trial {trial.number} {how} to {self._steps(rung)}{values}")
        training = Training(trial, rung, range(self.study.seeds), self._folder(trial))
        self._mine.add(trial.number)
        return training

    def _winner(self, trials: Sequence[FrozenTrial]) -> Training | None:
        """The best trial on fresh seeds, unless this command or another one has trained it."""
        done = [each for each in trials if each.state.name == "COMPLETE"]
        seeds = range(FRESH, FRESH + self.study.fresh_seeds)
        if self._crowned or not done or not seeds:
            return None
        self._crowned = True
        best = max(done, key=lambda trial: trial.value or 0.0)
        folder = self.root / "best" / self._folder(best).name
        try:
            return Training(best, len(self.study.budgets) - 1, seeds, folder)
        except RunInUse as error:
            self._say(str(error))
            return None

    def _folder(self, trial: FrozenTrial) -> Path:
        return self.root / f"trial-{trial.number:04}"

    def _steps(self, rung: int) -> str:
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
            with alone(self.root):  # others see all of it or nothing
                self._store.report(trial, self.study.budgets[rung], score)
                self._store.update(trial, rung=rung, curves=curves)
                if rung == len(self.study.budgets) - 1:
                    self._store.end(trial, "COMPLETE", score)
        on = " on fresh seeds" if training.of_winner else ""
        self._say(f"trial {trial.number}: {score:.6g} at {self._steps(rung)}{on}")
        self._release(training)
        return None

    def failed(self, training: Training, reason: str) -> None:
        """A trial has no score. Raises RunFailed where the first ones all have none."""
        if not training.of_winner:
            self._store.update(training.trial, reason=reason)
            self._store.end(training.trial, "FAIL")
        self._say(f"trial {training.trial.number} failed: {reason}")
        self._release(training)
        self.rows()
        trials = self._store.trials()
        failures = [each for each in trials if each.state.name == "FAIL"]
        if len(failures) >= MOST_FAILED and not any(progress_of(each).curves for each in trials):
            raise RunFailed(
                f"the first {len(failures)} trials have failed, the last one because {reason}"
            )

    def _release(self, training: Training) -> None:
        self._mine.discard(training.trial.number)
        training.lock.__exit__()

    def _counted(self, curve: Sequence[float]) -> list[float]:
        return counted(curve, Score(self.study.score), self.study.last_evals)

    def _standing(self, trial: FrozenTrial) -> Standing:
        progress, ended = progress_of(trial), trial.state.is_finished()
        places = [len(self.study.places(rung)) for rung in range(len(self.study.budgets))]
        curves = progress.curves  # [S][E]
        samples = [
            np.array([self._counted(each[:num]) for each in curves])  # [S, K]
            for num in places
            if curves and num <= len(curves[0])
        ]
        busy = progress.rung == len(samples) and not ended
        return Standing(number=trial.number, samples=tuple(samples), busy=busy, ended=ended)

    def rows(self) -> list[TrialRow]:
        """All trials as they are, which it writes to the directory, too. Raises OSError."""
        with alone(self.root):  # never older ones than another command has written
            rows = [self._row(each) for each in self._store.trials()]
            write_trials(self.root, rows)
        return rows

    def _row(self, trial: FrozenTrial) -> TrialRow:
        progress, standing = progress_of(trial), self._standing(trial)
        samples, ended = standing.samples, trial.datetime_complete
        state = trial.state.name.lower()
        return TrialRow(
            number=trial.number,
            status=state if ended else RUNNING if standing.busy else WAITING,
            reason=progress.reason,
            budget=self.study.budgets[len(samples) - 1] if samples else 0,
            scores=[float(each.mean()) for each in samples[-1]] if samples else [],
            ended=ended.isoformat(" ", "seconds") if ended else "",
            settings=progress.settings,
            command=shlex.join(["border-train", *self._runs.of(trial), "seed=0"]),
        )
