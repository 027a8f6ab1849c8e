"""What a list shows of each run, and which runs of a list are meant: conditions and order."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from border_cli.analysis.load import Run, Value
from border_cli.core.errors import CheckpointError, ConfigError
from border_cli.core.files import METRICS, readable_bytes
from border_cli.core.words import did_you_mean
from border_cli.recorder.read import last_rows, number

if TYPE_CHECKING:
    from border_cli.run.sweep_folder import JobRow

SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
SPANS = ("duration", "age")  # compared in seconds; `90`, `15m`, `2h`, `7d`
_CONDITION = re.compile(r"(?P<key>[\w./-]+?)(?P<how>==|!=|<=|>=|=|<|>)(?P<value>.*)", re.DOTALL)
_SPAN = re.compile(r"(\d+(?:\.\d+)?)([smhdw]?)")
_ORDERS: dict[str, Callable[[Any, Any], bool]] = {
    "<": lambda found, asked: found < asked,
    "<=": lambda found, asked: found <= asked,
    ">": lambda found, asked: found > asked,
    ">=": lambda found, asked: found >= asked,
}


@dataclass(frozen=True, kw_only=True)
class Row:
    """One run of a list, or one job of a sweep that has no run.

    `values` by the names of the columns: status, agent, env, seed, best, last, opt_steps,
    env_steps, duration and age in seconds, host, started, ended, reason, folder.
    """

    folder: Path
    values: Mapping[str, Value]
    run: Run | None = None
    job: int | None = None  # its number in the listed sweep
    swept: Mapping[str, str | None] = field(default_factory=dict)  # of such a job
    typed: Mapping[str, str] = field(default_factory=dict)  # of a job that has no run

    @cached_property
    def settings(self) -> Mapping[str, Value]:
        """Those of the run; of a job without a run what was typed for it."""
        if self.run is None:
            return self.typed
        try:
            return self.run.settings
        except CheckpointError:  # damaged: the list has the run all the same
            return {}

    def value(self, key: str) -> Value:
        """Of a column or a setting; None where the run has none."""
        return self.values[key] if key in self.values else self.settings.get(key)


def row_of(run: Run, now_s: float) -> Row:
    """What a list shows of a run; of one that is running, or was killed, as of its newest row of
    metrics."""
    facts = run.facts
    newest = {} if "duration_s" in facts else _newest(run.folder)
    return Row(
        folder=run.folder,
        run=run,
        values={
            "status": run.status,
            "agent": run.agent,
            "env": run.env,
            "seed": run.seed,
            "best": newest.get("best", facts.get("best_score")),
            "last": newest.get("last", facts.get("final_score")),
            "opt_steps": newest.get("opt_steps", facts.get("opt_steps")),
            "env_steps": newest.get("env_steps", facts.get("env_steps")),
            "duration": newest.get("time_s", facts.get("duration_s")),
            "age": _age_s(facts.get("started"), now_s),
            "host": facts.get("host"),
            "started": facts.get("started"),
            "ended": _text(facts.get("ended")),
            "reason": facts.get("exit_reason"),
            "folder": str(run.folder),
        },
    )


def row_of_job(job: JobRow) -> Row:
    """A job of a sweep that has no run directory yet, or none that can be read."""
    typed = job.job.values
    names = ("agent", "env", "seed", *_FIGURES, "host", "started", "ended")
    values: dict[str, Value] = {"status": job.status, **dict.fromkeys(names)}
    values |= {name: typed.get(name) for name in ("agent", "env")}
    with suppress(ValueError, KeyError):
        values["seed"] = int(typed["seed"])
    values |= {"reason": job.reason or None, "folder": str(job.folder)}
    return Row(folder=job.folder, values=values, typed=typed)


_FIGURES = ("best", "last", "opt_steps", "env_steps", *SPANS)


def _newest(folder: Path) -> dict[str, Any]:
    """Counters and scores of a run that has written no end, as of its metrics and best model."""
    found: dict[str, Any] = {}
    for row in reversed(last_rows(folder / METRICS)):
        for name in ("opt_steps", "env_steps", "time_s"):
            found.setdefault(name, row.get(name))
        if (last := row.get("eval/return")) is not None:
            found["last"] = last
            break
    with suppress(ValueError, KeyError, TypeError, RecursionError):
        found["best"] = number(json.loads(readable_bytes(folder / "best" / "score.json"))["score"])
    return {name: value for name, value in found.items() if value is not None}


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


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
    conditions = _conditions(text)
    for condition in conditions:
        _refuse_unknown(condition.key, rows)
    return [row for row in rows if all(each.holds(row) for each in conditions)]


def ordered(rows: Sequence[Row], key: str) -> list[Row]:
    """By a column or a setting: numbers from the highest, then texts from A, then what has no
    value; `-key` is the other way round."""
    name = key.removeprefix("-")
    _refuse_unknown(name, rows)
    numbers: list[tuple[float, Row]] = []
    texts: list[tuple[str, Row]] = []
    missing: list[Row] = []
    for row in rows:
        value = row.value(name)
        if value is None:
            missing.append(row)
        elif isinstance(value, int | float):
            numbers.append((value, row))
        else:
            texts.append((str(value), row))
    turned = key.startswith("-")
    numbers.sort(key=lambda each: each[0], reverse=not turned)
    texts.sort(key=lambda each: each[0], reverse=turned)
    return [*(row for _, row in numbers), *(row for _, row in texts), *missing]


def _refuse_unknown(key: str, rows: Sequence[Row]) -> None:
    if not rows or any(key in row.values or key in row.settings for row in rows):
        return
    columns = dict.fromkeys(name for row in rows for name in row.values)
    settings = dict.fromkeys(name for row in rows for name in row.settings)
    near = did_you_mean(key, [*columns, *settings])
    raise ConfigError(
        f"unknown key {key!r}{near} (choose from {', '.join(columns)} and the settings of the "
        "runs, such as agent.gamma)"
    )


@dataclass(frozen=True, slots=True)
class _Condition:
    text: str
    key: str
    how: str  # =, !=, <, <=, > or >=
    value: str

    def holds(self, row: Row) -> bool:
        """Whether a row meets it; what has no value meets `!=` and `=null` alone."""
        found = row.value(self.key)
        if self.how == "=":
            return self._equals(found)
        if self.how == "!=":
            return not self._equals(found)
        if found is None:
            return False
        if isinstance(found, str):
            return _ORDERS[self.how](found, self.value)
        if isinstance(found, list | dict | bool):
            raise ConfigError(f"{self.text}: {self.key} has no order; use = or !=")
        return _ORDERS[self.how](found, self._number())

    def _equals(self, found: Value) -> bool:
        if found is None:
            return self.value == "null"
        if isinstance(found, str):
            return fnmatchcase(found, self.value)
        if isinstance(found, bool):
            return self.value.lower() == str(found).lower()
        if isinstance(found, int | float):
            return self.value != "null" and found == self._number()
        return "".join(self.value.split()) == json.dumps(found, separators=(",", ":"))

    def _number(self) -> float:
        span = _SPAN.fullmatch(self.value) if self.key in SPANS else None
        if span is not None:
            return float(span[1]) * SECONDS[span[2] or "s"]
        try:
            return float(self.value)
        except ValueError as error:
            units = ", with s, m, h, d or w behind it" if self.key in SPANS else ""
            raise ConfigError(
                f"{self.text}: {self.key} is compared with a number{units}, got {self.value!r}"
            ) from error


def _conditions(text: str) -> list[_Condition]:
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise ConfigError(f"--where {text!r}: {error}") from error
    found = []
    for word in words:
        match = _CONDITION.fullmatch(word)
        if match is None:
            raise ConfigError(
                f"--where: {word!r} is no condition: write KEY=VALUE, or with !=, <, <=, > or >= "
                "in its place, and several with spaces between them, as in 'agent=sac best>200'"
            )
        how = match["how"].replace("==", "=")
        found.append(_Condition(word, match["key"], how, match["value"]))
    return found
