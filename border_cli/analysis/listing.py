"""Rows of a list of runs: the values of each, conditions that choose rows, and their order."""

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
from border_cli.system.files import METRICS, readable_bytes
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
# Columns, and the entries of `run.json` that are shown there
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
# Columns of a run without an end, and the metrics that have their newest values
_MEASURED = {
    "last": "eval/return",
    "opt_steps": "opt_steps",
    "env_steps": "env_steps",
    "duration": "time_s",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One run of a list, or one job of a sweep that has not begun."""

    run: SavedRun
    values: Mapping[str, Any]  # by column, in the listed sweep also its job; times in seconds
    swept: Mapping[str, str | None] = field(default_factory=dict)  # what was typed for such a job

    @property
    def folder(self) -> Path:
        return self.run.folder

    def value(self, key: str) -> Any:
        """The value of a column or a setting; None where the run has none."""
        return self.values[key] if key in self.values else self.run.labels.get(key)


def row_of(run: SavedRun, now_s: float) -> Row:
    """The row of a run; of one that is running, or was killed, with the values of its newest row
    of metrics."""
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
    """Counters and scores of a run that has written no end, as of its metrics and best model."""
    found: dict[str, Any] = {}
    for row in last_rows(folder / METRICS):
        found |= {
            name: row[metric] for name, metric in _MEASURED.items() if row.get(metric) is not None
        }
    with suppress(ValueError, LookupError, TypeError):
        found["best"] = number(json.loads(readable_bytes(folder / "best" / "score.json"))["score"])
    return found


def _age_s(started: str | None, now_s: float) -> float | None:
    """Since the run began."""
    try:
        return max(0.0, now_s - datetime.fromisoformat(started or "").timestamp())
    except (ValueError, OverflowError):
        return None


def where(rows: Sequence[Row], text: str) -> list[Row]:
    """The rows that meet all conditions of a text such as `agent=sac best>200 age<7d`.

    Raises `ConfigError` for what is no condition, and for a key that no run has.
    """
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise ConfigError(f"--where {text!r}: {error}") from error
    met = list(rows)
    for word in words:
        condition = _CONDITION.fullmatch(word)
        if condition is None:
            raise ConfigError(
                f"--where: {word!r} is no condition: write KEY=VALUE, or with !=, <, <=, > or >= "
                "in its place, and several with spaces between them, as in 'agent=sac best>200'"
            )
        key, how, value = condition.groups()
        _refuse_unknown(key, rows)
        met = [row for row in met if _holds(row.value(key), key, how, value)]
    return met


def _holds(found: Any, key: str, how: str, value: str) -> bool:
    """Whether a value meets a condition; None meets `!=` and `=null` alone."""
    if how in ("=", "==", "!="):
        return _equals(found, key, value) == (how != "!=")
    if found is None:
        return False
    if isinstance(found, list | dict | bool):
        raise ConfigError(f"{key}{how}{value}: {key} has no order; use = or !=")
    return _ORDERS[how](found, value if isinstance(found, str) else _number(key, value))


def _equals(found: Any, key: str, value: str) -> bool:
    if value == "null":
        return found is None
    if isinstance(found, str):
        return fnmatchcase(found, value)
    if type(found) in (int, float):  # and no bool
        return bool(found == _number(key, value))
    return "".join(value.split()) == json.dumps(found, separators=(",", ":"))


def _number(key: str, value: str) -> float:
    span = _SPAN.fullmatch(value) if key in SPANS else None
    if span is not None:
        return float(span[1]) * SECONDS[span[2] or "s"]
    try:
        return float(value)
    except ValueError as error:
        units = ", with s, m, h, d or w behind it" if key in SPANS else ""
        raise ConfigError(f"{key} is compared with a number{units}, got {value!r}") from error


def ordered(rows: Sequence[Row], key: str) -> list[Row]:
    """Rows by a column or a setting: numbers from the highest, texts from A, the other way round
    for `-key`; then those without a value."""
    name = key.removeprefix("-")
    _refuse_unknown(name, rows)

    def rank(row: Row) -> tuple[bool, float, str]:
        value = row.value(name)
        if isinstance(value, int | float):
            return False, -value, ""
        return True, 0.0, str(value)

    by_value = sorted(rows, key=rank, reverse=key.startswith("-"))
    return sorted(by_value, key=lambda row: row.value(name) is None)  # keeps the order otherwise


def _refuse_unknown(key: str, rows: Sequence[Row]) -> None:
    columns = rows[0].values if rows else [key]
    settings = dict.fromkeys(name for row in rows for name in row.run.labels)
    if key not in columns and key not in settings:
        raise ConfigError(
            f"unknown key {key!r}{did_you_mean(key, [*columns, *settings])} (choose from "
            f"{', '.join(columns)} and the settings of the runs, such as agent.gamma)"
        )
