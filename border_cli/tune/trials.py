"""The files of a study: `study.json` describes the search, `trials.json` the progress of the
trials. Reading them does not require Optuna."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

from border_cli.run.manifest import readable
from border_cli.settings.schedule import ENV_STEPS, UPDATES
from border_cli.system.files import STUDY_JSON, read_bytes, write_json

TRIALS_JSON = "trials.json"
RUNNING, WAITING = "running", "waiting"
FAILED = "fail"  # named as in Optuna
Read = TypeVar("Read")


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """The description of a study: what it searches and how it compares trials."""

    id: str
    name: str
    command: Sequence[str]  # as typed
    agent: str  # the option chosen, such as dqn
    env: str
    overrides: Sequence[str]  # overrides of every run
    space: dict[str, Any]  # entries of the search space, as JSON values
    seeds: int  # number of seeds per trial: 0 to seeds - 1
    score: str  # last, best or auc
    last_evals: int
    unit: str  # setting that limits a run to a budget: max_env_steps or max_opt_steps
    interval: int  # steps between two evaluations
    budgets: Sequence[int]  # steps per seed at each rung; the last is the full limit
    trials: int
    fresh_seeds: int  # number of new seeds on which the winner is retrained

    def steps(self, rung: int) -> str:
        """Formats the budget of a rung: `3,000 env steps`, or updates."""
        return f"{self.budgets[rung]:,} {UPDATES if self.unit == 'max_opt_steps' else ENV_STEPS}"

    def places(self, rung: int) -> list[int]:
        """Returns the steps at which runs are evaluated, up to a rung; the same for all trials."""
        steps = self.budgets[rung]
        return [*range(self.interval, steps, self.interval), steps]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialRow:
    """The state of a trial."""

    number: int
    status: str  # running, waiting (at a rung), complete, pruned, fail
    reason: str  # why it failed or was pruned
    budget: int  # steps per seed at the last rung reached
    scores: Sequence[float]  # score of each seed at that rung
    ended: str  # local time; empty while the trial is unfinished
    params: dict[str, Any]  # Optuna's parameters
    settings: Sequence[str]  # overrides that result from `params`
    command: str  # the border-train command that repeats the trial with its first seed

    @property
    def score(self) -> float:
        """The mean over seeds; undefined before the first rung."""
        return sum(self.scores) / len(self.scores)

    @property
    def values(self) -> str:
        """`learning_rate=6e-4 n_steps=3`."""
        return " ".join(re.sub(r"^[\w.]+\.", "", override) for override in self.settings)


def write_study(root: Path, study: Study) -> None:
    """Replaces `study.json`. Raises OSError."""
    write_json(root / STUDY_JSON, asdict(study))


def write_trials(root: Path, rows: Sequence[TrialRow]) -> None:
    """Replaces `trials.json`. Raises OSError."""
    write_json(root / TRIALS_JSON, [asdict(row) for row in rows])


def read_study(root: Path) -> Study:
    """Reads `study.json`. Raises CheckpointError if it is missing or invalid."""
    return _read(root / STUDY_JSON, lambda content: Study(**content))


def read_trials(root: Path) -> list[TrialRow]:
    """Reads `trials.json`, ordered by number. Raises CheckpointError if it cannot be read."""
    return _read(root / TRIALS_JSON, lambda content: [TrialRow(**row) for row in content])


def _read(path: Path, convert: Callable[[Any], Read]) -> Read:
    with readable(path):
        return convert(json.loads(read_bytes(path)))


def rank_trials(rows: Sequence[TrialRow]) -> list[TrialRow]:
    """Returns the trials that have a score and have not failed. Trials with the largest budget come
    first, and among these the best."""
    scored = (row for row in rows if row.scores and row.status != FAILED)
    return sorted(scored, key=lambda trial: (-trial.budget, -trial.score, trial.number))
