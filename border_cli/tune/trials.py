"""A study as its directory describes it: `study.json`, which says what is searched, and
`trials.csv`, a row per trial. Neither needs Optuna."""

from __future__ import annotations

import csv
import io
import json
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from border_cli.errors import CheckpointError
from border_cli.system.files import readable_bytes, write_json, write_text

STUDY_JSON, TRIALS_CSV = "study.json", "trials.csv"
RUNNING, WAITING = "running", "waiting"
COMPLETE, PRUNED, FAILED = "complete", "pruned", "failed"
ENDED = (COMPLETE, PRUNED, FAILED)
COLUMNS = (
    *("trial", "status", "score", "budget", "steps", "seconds", "ended", "reason"),
    *("scores", "settings", "command"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialRow:
    """A trial as far as it is."""

    number: int
    status: str  # running, waiting (paused at a rung), complete, pruned, failed
    budget: int  # steps that each seed has been trained, at the last rung reached
    score: float | None  # at that rung: mean over seeds of what counts
    scores: tuple[float, ...]  # of each seed
    steps: int  # trained in all, over its seeds
    seconds: float  # of processes, in all
    ended: str  # local time with offset; empty while it goes on
    reason: str  # why it was pruned or failed
    values: Mapping[str, str]  # hyperparameters as typed; empty where a condition left one out
    settings: tuple[str, ...]  # the overrides that its values make
    command: str  # the border-train line that repeats it, with a seed of one's choice


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """The content of `study.json`: what is searched, and how trials are compared."""

    id: str
    name: str
    command: tuple[str, ...]  # as typed
    agent: str  # the option chosen, such as dqn
    env: str
    overrides: tuple[str, ...]  # of every run
    space: Mapping[str, Any]  # plain data, as read
    seeds: int  # of each trial: 0 to seeds - 1
    score: str  # last, best or auc
    last_evals: int
    unit: str  # of budgets: max_env_steps or max_opt_steps
    budgets: tuple[int, ...]  # steps of each seed, per rung; the last is the full limit
    trials: int
    fresh_seeds: int  # on which the winner is trained again

    @property
    def unit_name(self) -> str:
        """`env steps` or `updates`."""
        return "updates" if self.unit == "max_opt_steps" else "env steps"

    @property
    def full_cost(self) -> int:
        """Steps of the full grid: every trial, with every seed, at the full budget."""
        return self.trials * self.seeds * self.budgets[-1]


def write_study(folder: Path, study: Study) -> None:
    """Replaces `study.json`. Raises `OSError` where it cannot be written."""
    write_json(folder / STUDY_JSON, asdict(study))


def read_study(folder: Path) -> Study:
    """The study in this directory. Raises `CheckpointError` where there is none, or none of
    ours."""
    path = folder / STUDY_JSON
    if not path.is_file():
        raise CheckpointError(f"no study in {folder}: {STUDY_JSON} is missing")
    try:
        found = json.loads(readable_bytes(path))
        listed = {name: tuple(found[name]) for name in ("command", "overrides", "budgets")}
        study = Study(**{**found, **listed})
        if study.full_cost > 0:
            return study
    except (ValueError, LookupError, TypeError):
        pass
    raise CheckpointError(f"{path} is damaged, or was not written by border-tune")


def trials_csv(rows: Iterable[TrialRow]) -> str:
    """`trials.csv`, in the order of numbers; hyperparameters are the last columns."""
    ordered = sorted(rows, key=lambda row: row.number)
    names = list(dict.fromkeys(name for row in ordered for name in row.values))
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*COLUMNS, *names])
    for row in ordered:
        scores = " ".join(map(repr, row.scores))
        counters = (row.number, row.status, row.score, row.budget, row.steps, round(row.seconds, 3))
        texts = (row.ended, row.reason, scores, shlex.join(row.settings), row.command)
        writer.writerow([*counters, *texts, *(row.values.get(name, "") for name in names)])
    return text.getvalue()


def write_trials(folder: Path, rows: Iterable[TrialRow]) -> None:
    """Replaces `trials.csv`. Raises `OSError` where it cannot be written."""
    write_text(folder / TRIALS_CSV, trials_csv(rows))


def read_trials(folder: Path) -> list[TrialRow]:
    """The trials in the order of their numbers; none before the first was written.

    Raises `CheckpointError` where the file is damaged.
    """
    path = folder / TRIALS_CSV
    if not path.exists():
        return []
    try:
        head, *lines = csv.reader(io.StringIO(readable_bytes(path).decode()))
        return [_row(head[len(COLUMNS) :], line) for line in lines]
    except ValueError as error:
        raise CheckpointError(f"{path} is damaged: {error}") from error


def _row(names: Sequence[str], line: Sequence[str]) -> TrialRow:
    number, status, score, budget, steps, seconds, ended, reason, *rest = line
    scores, settings, command, *values = rest
    return TrialRow(
        number=int(number),
        status=status,
        budget=int(budget),
        score=float(score) if score else None,
        scores=tuple(map(float, scores.split())),
        steps=int(steps),
        seconds=float(seconds),
        ended=ended,
        reason=reason,
        values=dict(zip(names, values, strict=True)),
        settings=tuple(shlex.split(settings)),
        command=command,
    )


def ranked(rows: Iterable[TrialRow]) -> list[TrialRow]:
    """Trials that have a score, the best first.

    Scores of different budgets do not compare: those that were trained longest come first.
    """
    scored = [row for row in rows if row.score is not None and row.status != FAILED]
    return sorted(scored, key=lambda row: (-row.budget, -(row.score or 0.0), row.number))
