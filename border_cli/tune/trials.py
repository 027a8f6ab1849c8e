"""A study as its directory describes it: `study.json`, which says what is searched, and
`trials.json`, how far each trial is. Neither needs Optuna."""

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
FAILED = "fail"  # as in Optuna
Read = TypeVar("Read")


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """What is searched, and how trials are compared."""

    id: str
    name: str
    command: Sequence[str]  # as typed
    agent: str  # the option chosen, such as dqn
    env: str
    overrides: Sequence[str]  # of every run
    space: dict[str, Any]  # plain data, as read
    seeds: int  # of each trial: 0 to seeds - 1
    score: str  # last, best or auc
    last_evals: int
    unit: str  # of budgets: max_env_steps or max_opt_steps
    interval: int  # steps between two evaluations
    budgets: Sequence[int]  # steps of each seed, per rung; the last is the full limit
    trials: int
    fresh_seeds: int  # on which the winner is trained again

    def steps(self, rung: int) -> str:
        """`3,000 env steps`, or updates: the budget of a rung."""
        return f"{self.budgets[rung]:,} {UPDATES if self.unit == 'max_opt_steps' else ENV_STEPS}"

    def places(self, rung: int) -> list[int]:
        """Where the evaluations of a run are, up to a rung: the same in every trial."""
        steps = self.budgets[rung]
        return [*range(self.interval, steps, self.interval), steps]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialRow:
    """A trial as far as it is."""

    number: int
    status: str  # running, waiting (at a rung), complete, pruned, fail
    reason: str  # why it failed or was pruned
    budget: int  # steps that each seed has been trained, at the last rung reached
    scores: Sequence[float]  # of each seed there
    ended: str  # local time; empty while it goes on
    params: dict[str, Any]  # as in Optuna
    settings: Sequence[str]  # the overrides that they make
    command: str  # the border-train line that repeats it, with its first seed

    @property
    def score(self) -> float:
        """The mean over seeds, of which there is none before the first rung."""
        return sum(self.scores) / len(self.scores)

    @property
    def values(self) -> str:
        """`learning_rate=6e-4 n_steps=3`."""
        return " ".join(re.sub(r"^[\w.]+\.", "", each) for each in self.settings)


def write_study(root: Path, study: Study) -> None:
    """Replaces `study.json`. Raises OSError."""
    write_json(root / STUDY_JSON, asdict(study))


def write_trials(root: Path, rows: Sequence[TrialRow]) -> None:
    """Replaces `trials.json`. Raises OSError."""
    write_json(root / TRIALS_JSON, [asdict(each) for each in rows])


def read_study(root: Path) -> Study:
    """Raises CheckpointError where there is no study of ours."""
    return _read(root / STUDY_JSON, lambda found: Study(**found))


def read_trials(root: Path) -> list[TrialRow]:
    """In the order of their numbers. Raises CheckpointError where they cannot be read."""
    return _read(root / TRIALS_JSON, lambda found: [TrialRow(**each) for each in found])


def _read(path: Path, made: Callable[[Any], Read]) -> Read:
    with readable(path):
        return made(json.loads(read_bytes(path)))


def ranked(rows: Sequence[TrialRow]) -> list[TrialRow]:
    """Trials that have a score, the best first; those that were trained longest before others."""
    scored = (each for each in rows if each.scores and each.status != FAILED)
    return sorted(scored, key=lambda row: (-row.budget, -row.score, row.number))
