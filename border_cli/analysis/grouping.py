"""From run directories to curves in groups: what a group is called, and what it leaves out."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from border_cli.analysis.curves import NAMED, X_NAMES, RunCurve
from border_cli.analysis.load import SavedRun
from border_cli.errors import CheckpointError, ConfigError
from border_cli.recorder.read import rows_with
from border_cli.system.files import METRICS
from border_cli.words import counted, did_you_mean, listed, shortest, unknown

SCORE, NORMALIZED = "eval/return", "eval/normalized_score"
STOPPED = "stop_at_score reached"  # an exit reason
BARE = ("agent", "env")  # keys that a label need not name
OF_ONE_RUN = {
    *("seed", "name", "quiet", "statistics", "imports", "objective", "device"),
    *(f"trainer.max_{each}" for each in ("opt_steps", "env_steps", "time_s")),
}
ASIDE = ("recorder", "callback", "checkpoint")  # groups that do not change what is learned
MISSING = "–"  # the value of a setting that a run does not have

Reference = tuple[float, float]  # the returns of the random policy and of the expert
NO_REFERENCES: Mapping[str, Reference] = {}


class _Measured(NamedTuple):
    """A run, and its rows in which the metric that is drawn is a number."""

    run: SavedRun
    rows: Sequence[Mapping[str, Any]]

    @property
    def env(self) -> str:
        return self.run.env or MISSING


@dataclass(frozen=True, slots=True, kw_only=True)
class Grouped:
    """The curves of runs, how they are grouped, and what a reader must know about it."""

    curves: tuple[RunCurve, ...]
    by: tuple[str, ...]
    x: str
    warnings: tuple[str, ...]


def grouped(
    runs: Sequence[SavedRun],
    *,
    by: Sequence[str] = (),
    x: str | None = None,
    y: str = SCORE,
    references: Mapping[str, Reference] = NO_REFERENCES,
) -> Grouped:
    """`by`: dotted settings, by default those that differ; `x`: by default env steps, or updates
    where no run has stepped an environment. `references`: returns by environment.

    Raises `ConfigError` for settings and metrics that no run has.
    """
    warnings: list[str] = []
    known = list(_readable(runs, y, warnings))
    settings = [each.run.settings for each in known]
    names = dict.fromkeys(chain(*settings))
    for key in by:
        if key not in names:
            raise ConfigError(f"--by: no run has the setting {key!r}{did_you_mean(key, names)}")
    by = tuple(dict.fromkeys(by)) or swept(settings)
    drawn = [each for each in known if each.rows]
    if not drawn:
        raise ConfigError("; ".join([_no_metric([each.run for each in known], y), *warnings]))
    offline = not any(each.rows[-1]["env_steps"] for each in drawn)
    if offline and x == "env_steps":
        raise ConfigError("--x must be opt_steps or time_s: these runs have stepped no environment")
    x = x or ("opt_steps" if offline else "env_steps")
    envs = list(dict.fromkeys(each.env for each in drawn))
    for env in references:
        if env not in envs:
            raise ConfigError(f"--reference: {unknown('env', env, envs)}")
    curves = []
    members: dict[str, list[Mapping[str, Any]]] = {}
    for each in drawn:
        env = ", ".join(envs) if "env" in by else each.env
        curve = _curve(each, _label(each.run.settings, by), env, x=x, y=y, references=references)
        curves.append(curve)
        members.setdefault(f"{curve.group} on {env}", []).append(each.run.settings)
    warnings += _warnings(known, members, y)
    return Grouped(curves=tuple(curves), by=by, x=x, warnings=tuple(warnings))


def _warnings(
    known: Sequence[_Measured], members: Mapping[str, Sequence[Mapping[str, Any]]], y: str
) -> Iterator[str]:
    """Warnings about runs left out, groups that mix settings, and runs that still run."""
    without = [each.run for each in known if not each.rows]
    if without:
        yield f"{_named(without)} left out: no {y} recorded"
    for group, settings in members.items():
        keys = dict.fromkeys(filter(_counts, chain(*settings)))
        differing = [key for key in keys if len({_value(each, key) for each in settings}) > 1]
        if differing:
            named = listed(differing, NAMED)
            yield f"{group} mixes runs that differ in {named}; add what matters to --by"
    unfinished = [each.run for each in known if each.run.status == "running"]
    if unfinished:
        yield f"{_named(unfinished)} still running"


def _readable(runs: Iterable[SavedRun], y: str, warnings: list[str]) -> Iterator[_Measured]:
    """The runs whose settings and metrics can be read; the others are named in `warnings`."""
    for run in runs:
        try:
            _ = run.settings
            rows = [row for row in rows_with(run.folder / METRICS, y) if row[y] is not None]
            yield _Measured(run, rows)
        except CheckpointError as error:
            warnings.append(f"left out: {error}")


def swept(settings: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """The settings that differ between the runs on one environment, options before single values.

    What follows from another (the n-step returns of one agent) is not among them.
    """
    keys = dict.fromkeys(filter(_counts, chain(*settings)))
    cells: list[tuple[str, ...]]
    cells = [(_value(each, "env"), _value(each, "env.id")) for each in settings]
    found = []
    for key in sorted(keys, key=lambda each: (each != "agent", "." in each)):  # stable
        refined = [(*cell, _value(each, key)) for cell, each in zip(cells, settings, strict=True)]
        if len(set(refined)) > len(set(cells)):
            found.append(key)
            cells = refined
    return tuple(found) or ("agent",)


def _counts(key: str) -> bool:
    return key not in OF_ONE_RUN and key.partition(".")[0] not in ASIDE


def _value(settings: Mapping[str, Any], key: str) -> str:
    """A setting as it is typed: true, null, [64,64]; an env without a file by its id."""
    if key == "env" and settings.get(key) in (None, "gym"):
        key = "env.id"
    value = settings.get(key, MISSING)
    return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))


def _label(settings: Mapping[str, Any], by: Sequence[str]) -> str:
    """`true` where one setting makes the groups, else `dqn, double=true`."""
    bare = by if len(by) == 1 else BARE
    values = ((key, _value(settings, key)) for key in by)
    return ", ".join(
        value if key in bare else f"{key.rpartition('.')[2]}={value}" for key, value in values
    )


def _no_metric(runs: Sequence[SavedRun], y: str) -> str:
    names = sorted({name for run in runs[:NAMED] for name in run.metrics() if name not in X_NAMES})
    if not names:
        return f"{counted(len(runs), 'run')}, but none has recorded metrics yet"
    return f"--y: {unknown('metric', y, names)}"


def _curve(
    measured: _Measured,
    group: str,
    env: str,
    *,
    x: str,
    y: str,
    references: Mapping[str, Reference],
) -> RunCurve:
    run, rows = measured
    points = {row[x]: row[y] for row in rows}  # of several at one x the last
    steps, values = np.array(sorted(points.items()), np.float64).T
    normalized = rows[-1].get(NORMALIZED) if y == SCORE else None
    if y == SCORE and measured.env in references:
        low, high = references[measured.env]
        normalized = 100 * (rows[-1][y] - low) / (high - low)
    return RunCurve(
        name=str(shortest(run.folder)),
        env=env,
        group=group,
        x=steps,
        y=values,
        stopped=run.facts.get("exit_reason") == STOPPED,
        normalized=normalized,
    )


def _named(runs: Sequence[SavedRun]) -> str:
    names = listed([shortest(run.folder) for run in runs], NAMED)
    return f"{counted(len(runs), 'run')} ({names})"
