"""A study in its directory: how it begins and goes on, what is decided about its trials, and where
each of them stands."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from border_cli.errors import ConfigError, RunFailed
from border_cli.messages import complain
from border_cli.run.layout import STUDY, refuse_foreign
from border_cli.run.lock import RunInUse, RunLock, running
from border_cli.run.run_folder import RunFolder
from border_cli.run.sweep_folder import alone
from border_cli.system.files import STUDY_JSON, SWEEP_JSON
from border_cli.tune.config import Score, TuneConfig
from border_cli.tune.halving import Standing, What, counted, next_step
from border_cli.tune.runs import FRESH, Training, TrialRuns
from border_cli.tune.space import Space
from border_cli.tune.store import CURVES, REASON, TrialStore
from border_cli.tune.trials import (
    FAILED,
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
# The end of a journal of SQLite's for several databases. Optuna opens one.
SUPER_JOURNAL = bytes.fromhex("d9d505f920a163d7")
MAY_CHANGE = ("id", "name", "command", "trials", "fresh_seeds")


def begun(root: Path, asked: Study) -> Study:
    """The study in its directory, which goes on where it was there.

    Raises ConfigError where the directory holds something else, or a study of another kind.
    """
    if RunFolder(root).has_run or (root / SWEEP_JSON).exists():
        raise ConfigError(f"study={shortest(root)} contains runs that are not a study's")
    refuse_foreign(root, STUDY)
    journal = root / "study.db-journal"
    if journal.is_file() and journal.read_bytes().endswith(SUPER_JOURNAL):
        raise ConfigError(f"{journal} names another file, which SQLite would remove: delete it")
    root.mkdir(parents=True, exist_ok=True)
    with alone(root):
        found = read_study(root) if (root / STUDY_JSON).exists() else asked
        changed = [
            name
            for name in Study.__slots__
            if name not in MAY_CHANGE and getattr(found, name) != getattr(asked, name)
        ]
        if changed:
            raise ConfigError(
                f"study={shortest(root)} was begun with other {', '.join(changed)} (see "
                f"{STUDY_JSON}), and its trials would not compare: type those, or choose another "
                "study=DIR"
            )
        study = replace(asked, id=found.id, name=found.name)
        write_study(root, replace(study, trials=max(found.trials, asked.trials)))
        if found.trials > asked.trials:
            complain(
                "border-tune",
                f"the first {asked.trials} trials are trained; the study has others, too, which "
                f"trials={found.trials} trains",
            )
        return study


@dataclass(slots=True)
class Trials:
    """The trials of a study as one command sees and moves them; owned by its main thread.

    A trial is trained by whoever has the lock of its folder. Where nobody has it, the trial waits
    at the last rung that it has reached, whatever was trained since.
    """

    study: Study
    space: Space
    store: TrialStore
    config: TuneConfig
    runs: TrialRuns
    say: Callable[[str], None]  # tells the user what happened to a trial
    rows: list[TrialRow] = field(default_factory=list)  # all trials, as `look` has found them
    fresh: list[float] = field(default_factory=list)  # the winner's scores on fresh seeds
    winner: FrozenTrial | None = None  # once it is trained on those, here or elsewhere

    def take(self) -> Training | What:
        """What this command trains next, in the end the winner; `wait` and `finish` as halving
        does. All else that is decided on the way there is done."""
        with alone(self.runs.root):
            while True:
                trials = self.store.trials()[: self.study.trials]
                standings = [self._standing(each) for each in trials]
                decided = next_step(standings, self.study, self.config)
                step, number = decided.what, decided.number
                if step == What.finish:
                    return self._crowned(trials) or step
                if step == What.wait:
                    return step
                if number is None:
                    self.store.add(self.space, self.config.sampler)
                elif step == What.promote:
                    rung = len(standings[number].samples)
                    return self._trained(trials[number], rung, range(self.study.seeds))
                else:
                    why = f": {decided.reason}" if decided.reason else ""
                    self.store.note(trials[number], REASON, decided.reason)
                    self.store.end(trials[number], step)
                    self.say(f"trial {number} is {step}{why}")

    def _crowned(self, trials: Sequence[FrozenTrial]) -> Training | None:
        """The best trial on fresh seeds, unless this command or another one trains it."""
        complete = [each for each in trials if each.state.name == "COMPLETE"]
        seeds = range(FRESH, FRESH + self.study.fresh_seeds)
        if self.winner or not complete or not seeds:
            return None
        self.winner = max(complete, key=lambda trial: trial.value or 0.0)
        try:
            return self._trained(self.winner, len(self.study.budgets) - 1, seeds, "best")
        except RunInUse as error:
            self.say(str(error))
            return None

    def _trained(
        self, trial: FrozenTrial, rung: int, seeds: Sequence[int], parent: str = ""
    ) -> Training:
        settings, folder = self.space.overrides(trial.params), self._folder(trial, parent)
        folders = {seed: folder / f"seed-{seed}" for seed in seeds}
        training = Training(trial, rung, settings, folders, RunLock(folder).__enter__())
        values = "" if rung else f": {' '.join(settings)}"
        self.say(f"trial {trial.number} is trained to {self.study.steps(rung)}{values}")
        return training

    def _folder(self, trial: FrozenTrial, parent: str = "") -> Path:
        return self.runs.root / parent / f"trial-{trial.number:04}"

    def reached(self, training: Training) -> None:
        """All these runs have come to their rung."""
        trial, rung = training.trial, training.rung
        try:
            curves = [self.runs.curve(each, rung) for each in training.folders.values()]
        except ConfigError as error:
            return self.failed(training, str(error))
        scores = [float(np.mean(self._counted(each))) for each in curves]
        score = float(np.mean(scores))
        if training.of_winner:
            self.fresh = scores
        else:
            with alone(self.runs.root):  # others see all of it or nothing
                self.store.report(trial, self.study.budgets[rung], score)
                self.store.note(trial, CURVES, curves)
        on = " on fresh seeds" if training.of_winner else ""
        return self._released(training, f"{score:.6g} at {self.study.steps(rung)}{on}")

    def failed(self, training: Training, reason: str) -> None:
        """A trial has no score. Raises RunFailed where the first ones all have none."""
        if not training.of_winner:
            self.store.note(training.trial, REASON, reason)
            self.store.end(training.trial, "fail")
        self._released(training, f"failed: {reason}")
        self.look()
        failed = [row.reason for row in self.rows if row.status == FAILED]
        if len(failed) >= MOST_FAILED and not any(row.scores for row in self.rows):
            raise RunFailed(f"the first {len(failed)} trials have failed, the last one: {reason}")

    def _released(self, training: Training, what: str) -> None:
        training.lock.__exit__()
        self.say(f"trial {training.trial.number}: {what}")

    def _counted(self, curve: Sequence[float]) -> list[float]:
        return counted(curve, Score(self.study.score), self.study.last_evals)

    def _standing(self, trial: FrozenTrial) -> Standing:
        curves = trial.user_attrs.get(CURVES, [[]])  # [S][E]
        places = [len(self.study.places(rung)) for rung in range(len(self.study.budgets))]
        samples = [
            np.array([self._counted(each[:num]) for each in curves])  # [S, K]
            for num in places
            if num <= len(curves[0])
        ]
        with running(folder := self._folder(trial)) as busy:
            if busy is None:
                raise ConfigError(
                    f"{folder} is on a file system without locks, which a study needs"
                )
            return Standing(trial.number, samples, busy, trial.state.is_finished())

    def look(self) -> None:
        """Updates `rows`, and the directory where they have changed. Raises OSError."""
        with alone(self.runs.root):  # never older ones than another command has written
            rows = [self._row(each) for each in self.store.trials()]
            if rows != self.rows:
                write_trials(self.runs.root, rows)
        self.rows = rows

    def _row(self, trial: FrozenTrial) -> TrialRow:
        standing, ended = self._standing(trial), trial.datetime_complete
        samples, settings = standing.samples, self.space.overrides(trial.params)
        status = trial.state.name.lower() if ended else RUNNING if standing.busy else WAITING
        return TrialRow(
            number=trial.number,
            status=status,
            reason=trial.user_attrs.get(REASON, ""),
            budget=self.study.budgets[len(samples) - 1] if samples else 0,
            scores=[float(each.mean()) for each in samples[-1]] if samples else [],
            ended=ended.isoformat(" ", "seconds") if ended else "",
            params=trial.params,
            settings=settings,
            command=shlex.join(["border-train", *self.runs.typed(settings), "seed=0"]),
        )
