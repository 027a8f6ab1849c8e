"""The rows of a list of runs: their values, `--where` conditions, and sorting."""

from __future__ import annotations

import json
import operator
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from border_cli.analysis.load import SavedRun
from border_cli.errors import ConfigError
from border_cli.recorder.read import last_rows, number
from border_cli.system.files import METRICS, read_bytes_or_empty
from border_cli.words import did_you_mean

SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
SPANS = ("duration", "age")  # compared in seconds; `90`, `15m`, `2h`, `7d`
_CONDITION = re.compile(r"([\w./-]+?)(==|!=|<=|>=|=|<|>)(.*)", re.DOTALL)
_SPAN = re.compile(r"(\d+(?:\.\d+)?)([smhdw]?)")
_ORDERS: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
# Column -> key in `run.json`
_FACTS = {
    "best": "best_score",
    "last": "final_score",
    "opt_steps": "opt_steps",
    "env_steps": "env_steps",
    "duration": "duration_s",
    "host": "host",
    "started": "started",
    "ended": "ended",
    "reason": "exit_reason",
}
# Column -> metric whose latest value is shown for a run that has not recorded its end
_MEASURED = {
    "last": "eval/return",
    "opt_steps": "opt_steps",
    "env_steps": "env_steps",
    "duration": "time_s",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A run in a list, or a sweep job that has not started."""

    run: SavedRun
    values: Mapping[str, Any]  # column -> value, for sweeps including the job; spans in seconds
    swept: Mapping[str, str | None] = field(
        default_factory=dict
    )  # overrides, if it has not started

    @property
    def folder(self) -> Path:
        return self.run.folder

    def value(self, key: str) -> Any:
        """Returns the value of a column or a setting; None if the run has none."""
        return self.values[key] if key in self.values else self.run.labels.get(key)


def row_of(run: SavedRun, now_s: float) -> Row:
    """Builds the row of a run. A running or killed run has the latest values of its metrics."""
    values = {
        "status": run.status,
        "agent": run.agent,
        "env": run.env,
        "seed": run.seed,
        **{column: run.facts.get(name) for column, name in _FACTS.items()},
        "age": _age_s(run.facts.get("started"), now_s),
        "folder": str(run.folder),
    }
    if values["duration"] is None:
        values |= _newest(run.folder)
    return Row(run=run, values=values)


def _newest(folder: Path) -> dict[str, Any]:
    """Reads counters and scores of a run without a recorded end from its metrics and best model."""
    values: dict[str, Any] = {}
    for row in last_rows(folder / METRICS):
        values |= {
            name: row[metric] for name, metric in _MEASURED.items() if row.get(metric) is not None
        }
    with suppress(ValueError, LookupError, TypeError):
        values["best"] = number(
            json.loads(read_bytes_or_empty(folder / "best" / "score.json"))["score"]
        )
    return values


def _age_s(started: str | None, now_s: float) -> float | None:
    """Returns the seconds since the run started."""
    try:
        return max(0.0, now_s - datetime.fromisoformat(started or "").timestamp())
    except (ValueError, OverflowError):
        return None


def filter_rows(rows: Sequence[Row], text: str) -> list[Row]:
    """Returns the rows that meet all conditions, such as `agent=sac best>200 age<7d`.

    Raises `ConfigError` for an invalid condition and for a key that no run has.
    """
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise ConfigError(f"--where {text!r}: {error}") from error
    matches = list(rows)
    for word in words:
        condition = _CONDITION.fullmatch(word)
        if condition is None:
            raise ConfigError(
                f"--where: {word!r} is not a condition: write KEY=VALUE, or use !=, <, <=, > or >= "
                "instead of =; separate conditions with spaces, as in 'agent=sac best>200'"
            )
        key, comparison, value = condition.groups()
        _refuse_unknown(key, rows)
        matches = [row for row in matches if _holds(row.value(key), key, comparison, value)]
    return matches


def _holds(actual: Any, key: str, comparison: str, value: str) -> bool:
    """Returns whether a value meets a condition. None meets only `=null` and `!=` with
    another value."""
    if comparison in ("=", "==", "!="):
        return _equals(actual, key, value) == (comparison != "!=")
    if actual is None:
        return False
    if isinstance(actual, list | dict | bool):
        raise ConfigError(f"{key}{comparison}{value}: {key} cannot be ordered; use = or !=")
    return _ORDERS[comparison](actual, value if isinstance(actual, str) else _number(key, value))


def _equals(actual: Any, key: str, value: str) -> bool:
    if value == "null":
        return actual is None
    if isinstance(actual, str):
        return fnmatchcase(actual, value)
    if type(actual) in (int, float):  # but not bool
        return bool(actual == _number(key, value))
    if isinstance(actual, bool):
        return value.lower() == str(actual).lower()  # Hydra reads `True` as well
    # The shell or `filter_rows` may have removed quotes, so names in lists are compared without.
    return re.sub(r'[\s"\']', "", value) == re.sub(r'[\s"\']', "", json.dumps(actual))


def _number(key: str, value: str) -> float:
    span = _SPAN.fullmatch(value) if key in SPANS else None
    if span is not None:
        return float(span[1]) * SECONDS[span[2] or "s"]
    try:
        return float(value)
    except ValueError as error:
        units = " or a time such as 90s, 15m, 2h, 7d or 1w" if key in SPANS else ""
        raise ConfigError(f"{key} must be compared with a number{units}, got {value!r}") from error


def sort_rows(rows: Sequence[Row], key: str) -> list[Row]:
    """Sorts rows by a column or a setting: numbers in descending, text in ascending order.

    `-key` reverses the order. Rows without a value always come last.
    """
    name = key.removeprefix("-")
    _refuse_unknown(name, rows)

    def rank(row: Row) -> tuple[bool, float, str]:
        value = row.value(name)
        if isinstance(value, int | float):
            return False, -value, ""
        return True, 0.0, str(value)

    by_value = sorted(rows, key=rank, reverse=key.startswith("-"))
    return sorted(by_value, key=lambda row: row.value(name) is None)  # sort is stable


def _refuse_unknown(key: str, rows: Sequence[Row]) -> None:
    columns = rows[0].values if rows else [key]
    settings = dict.fromkeys(name for row in rows for name in row.run.labels)
    if key not in columns and key not in settings:
        raise ConfigError(
            f"unknown key {key!r}{did_you_mean(key, [*columns, *settings])} (choose from "
            f"{', '.join(columns)} and the settings of the runs, such as agent.gamma)"
        )
