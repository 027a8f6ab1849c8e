"""A study in its directory: creating or resuming it, deciding about its trials, and recording
their progress."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from border_cli.errors import ConfigError, RunFailed
from border_cli.run.layout import STUDY, refuse_foreign
from border_cli.run.lock import RunInUse, RunLock, running
from border_cli.run.run_folder import RunFolder
from border_cli.run.sweep_folder import sweep_lock
from border_cli.system.files import STUDY_JSON, SWEEP_JSON
from border_cli.tune.config import Score, TuneConfig
from border_cli.tune.halving import Action, Standing, next_step, select_evaluations
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

MOST_FAILED = 3  # the study stops if this many trials fail before any trial has a score
# Last bytes of an SQLite journal for several databases, which Optuna never writes.
SUPER_JOURNAL = bytes.fromhex("d9d505f920a163d7")
MAY_CHANGE = ("id", "name", "command", "trials", "fresh_seeds")


def open_study(root: Path, requested: Study) -> Study:
    """Creates the study in its directory, or resumes an existing one.

    Raises ConfigError if the directory contains something else or a study with other settings.
    """
    if RunFolder(root).has_run or (root / SWEEP_JSON).exists():
        raise ConfigError(f"study={shortest(root)} contains runs that do not belong to a study")
    refuse_foreign(root, STUDY)
    journal = root / "study.db-journal"
    if journal.is_file() and journal.read_bytes().endswith(SUPER_JOURNAL):
        raise ConfigError(
            f"{journal} names another file, which SQLite would remove: delete the journal"
        )
    root.mkdir(parents=True, exist_ok=True)
    with sweep_lock(root):
        saved = read_study(root) if (root / STUDY_JSON).exists() else requested
        changed = [
            name
            for name in Study.__slots__
            if name not in MAY_CHANGE and getattr(saved, name) != getattr(requested, name)
        ]
        if changed:
            raise ConfigError(
                f"study={shortest(root)} was begun with different {', '.join(changed)} (see "
                f"{STUDY_JSON}), so its trials would not be comparable: use the same values, or "
                "choose another study=DIR"
            )
        study = replace(requested, id=saved.id, name=saved.name)
        write_study(root, replace(study, trials=max(saved.trials, requested.trials)))
        return study


@dataclass(slots=True)
class Trials:
    """The trials of a study, as one command reads and advances them; owned by its main thread.

    A command must hold the lock of a trial's directory to train the trial. An unlocked trial waits
    at the last rung that it has reached, even if it was trained beyond it.
    """

    study: Study
    space: Space
    store: TrialStore
    config: TuneConfig
    runs: TrialRuns
    say: Callable[[str], None]  # reports events of a trial to the user
    rows: list[TrialRow] = field(default_factory=list)  # all trials, as of the last `look`
    fresh: list[float] = field(default_factory=list)  # the winner's scores on fresh seeds
    winner: FrozenTrial | None = None  # set once this or another command trains it on fresh seeds

    @property
    def own_rows(self) -> list[TrialRow]:
        """The rows of the trials that this command may train, if it has fewer than the study."""
        return self.rows[: self.study.trials]

    def take(self) -> Training | Action:
        """Returns the next training, finally that of the winner, or `wait` or `finish`.

        Carries out all other decisions on the way, such as adding and pruning trials.
        """
        with sweep_lock(self.runs.root):
            while True:
                trials = self.store.trials()[: self.study.trials]
                standings = [self._standing(trial) for trial in trials]
                decision = next_step(standings, self.study, self.config)
                step, number = decision.action, decision.number
                if step == Action.finish:
                    return self._train_winner(trials) or step
                if step == Action.wait:
                    return step
                if number is None:
                    self.store.add(self.space, self.config.sampler)
                elif step == Action.promote:
                    rung = len(standings[number].samples)
                    return self._begin_training(trials[number], rung, range(self.study.seeds))
                else:
                    why = f": {decision.reason}" if decision.reason else ""
                    self.store.note(trials[number], REASON, decision.reason)
                    self.store.end(trials[number], step)
                    self.say(f"trial {number} is {step}{why}")

    def _train_winner(self, trials: Sequence[FrozenTrial]) -> Training | None:
        """Begins training the best trial on fresh seeds; returns None if that is not needed."""
        complete = [trial for trial in trials if trial.state.name == "COMPLETE"]
        seeds = range(FRESH, FRESH + self.study.fresh_seeds)
        if self.winner or not complete or not seeds:
            return None
        self.winner = max(complete, key=lambda candidate: candidate.value or 0.0)
        try:
            return self._begin_training(self.winner, len(self.study.budgets) - 1, seeds, "best")
        except RunInUse as error:
            self.say(str(error))
            return None

    def _begin_training(
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

    def finish_training(self, training: Training) -> None:
        """Records that all runs of a training have reached their rung."""
        trial, rung = training.trial, training.rung
        try:
            curves = [self.runs.curve(folder, rung) for folder in training.folders.values()]
        except ConfigError as error:
            return self.record_failure(training, str(error))
        scores = [float(np.mean(self._scored_evaluations(curve))) for curve in curves]
        score = float(np.mean(scores))
        if training.of_winner:
            self.fresh = scores
        else:
            with sweep_lock(self.runs.root):  # other commands read both writes or none
                self.store.report(trial, self.study.budgets[rung], score)
                self.store.note(trial, CURVES, curves)
        on = " on fresh seeds" if training.of_winner else ""
        return self._release(training, f"{score:.6g} at {self.study.steps(rung)}{on}")

    def record_failure(self, training: Training, reason: str) -> None:
        """Records that a trial failed. Raises RunFailed if all of the first trials failed."""
        if not training.of_winner:
            self.store.note(training.trial, REASON, reason)
            self.store.end(training.trial, "fail")
        self._release(training, f"failed: {reason}")
        self.look()
        failed = [row.reason for row in self.rows if row.status == FAILED]
        if len(failed) >= MOST_FAILED and not any(row.scores for row in self.rows):
            raise RunFailed(f"the first {len(failed)} trials failed, the last one with: {reason}")

    def _release(self, training: Training, event: str) -> None:
        training.lock.__exit__()
        self.say(f"trial {training.trial.number}: {event}")

    def _scored_evaluations(self, curve: Sequence[float]) -> list[float]:
        return select_evaluations(curve, Score(self.study.score), self.study.last_evals)

    def _standing(self, trial: FrozenTrial) -> Standing:
        curves = trial.user_attrs.get(CURVES, [[]])  # [S][E]
        lengths = [len(self.study.places(rung)) for rung in range(len(self.study.budgets))]
        samples = [
            np.array([self._scored_evaluations(curve[:num]) for curve in curves])  # [S, K]
            for num in lengths
            if num <= len(curves[0])
        ]
        with running(folder := self._folder(trial)) as busy:
            if busy is None:
                raise ConfigError(
                    f"{folder} is on a file system without locks, which a study requires"
                )
            return Standing(trial.number, samples, busy, trial.state.is_finished())

    def look(self) -> None:
        """Updates `rows` and, if they have changed, `trials.json`. Raises OSError."""
        with sweep_lock(self.runs.root):  # never overwrites newer rows of another command
            rows = [self._row(trial) for trial in self.store.trials()]
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
            scores=[float(evaluations.mean()) for evaluations in samples[-1]] if samples else [],
            ended=ended.isoformat(" ", "seconds") if ended else "",
            params=trial.params,
            settings=settings,
            command=shlex.join(["border-train", *self.runs.overrides_for(settings), "seed=0"]),
        )
