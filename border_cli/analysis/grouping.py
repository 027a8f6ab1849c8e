"""Grouping of runs: reads their curves, groups them by settings and labels the groups."""

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
from border_cli.words import did_you_mean, join_names, pluralize, shortest, unknown

SCORE, NORMALIZED = "eval/return", "eval/normalized_score"
STOPPED = "stop_at_score reached"  # exit reason of a run that reached its stop score
BARE = ("agent", "env")  # settings whose values are shown without their names
OF_ONE_RUN = {
    *("seed", "name", "quiet", "statistics", "imports", "objective", "device"),
    *(f"trainer.max_{unit}" for unit in ("opt_steps", "env_steps", "time_s")),
}
ASIDE = ("recorder", "callback", "checkpoint")  # groups that do not change what is learned
MISSING = "–"  # stands for a setting that a run does not have

Reference = tuple[float, float]  # returns of the random policy and of the expert
NO_REFERENCES: Mapping[str, Reference] = {}


class _Measured(NamedTuple):
    """A run, and its rows with a numeric value of the plotted metric."""

    run: SavedRun
    rows: Sequence[Mapping[str, Any]]

    @property
    def env(self) -> str:
        return self.run.env or MISSING


@dataclass(frozen=True, slots=True, kw_only=True)
class Grouped:
    """The curves of runs, the settings that group them, and warnings."""

    curves: tuple[RunCurve, ...]
    by: tuple[str, ...]
    x: str
    warnings: tuple[str, ...]


def group_runs(
    runs: Sequence[SavedRun],
    *,
    by: Sequence[str] = (),
    x: str | None = None,
    y: str = SCORE,
    references: Mapping[str, Reference] = NO_REFERENCES,
) -> Grouped:
    """Reads the curves of runs and groups them.

    `by` are dotted settings, by default those that differ. `x` defaults to env steps, or to updates
    if no run has stepped an environment. `references` are returns by environment. Raises
    `ConfigError` for settings and metrics that no run has.
    """
    warnings: list[str] = []
    readable = list(_readable(runs, y, warnings))
    settings = [entry.run.settings for entry in readable]
    names = dict.fromkeys(chain(*settings))
    for key in by:
        if key not in names:
            raise ConfigError(f"--by: no run has the setting {key!r}{did_you_mean(key, names)}")
    by = tuple(dict.fromkeys(by)) or differing_settings(settings)
    drawn = [entry for entry in readable if entry.rows]
    if not drawn:
        raise ConfigError("; ".join([_no_metric([entry.run for entry in readable], y), *warnings]))
    offline = not any(entry.rows[-1]["env_steps"] for entry in drawn)
    if offline and x == "env_steps":
        raise ConfigError("--x must be opt_steps or time_s: these runs stepped no environment")
    x = x or ("opt_steps" if offline else "env_steps")
    envs = list(dict.fromkeys(entry.env for entry in drawn))
    for env in references:
        if env not in envs:
            raise ConfigError(f"--reference: {unknown('env', env, envs)}")
    curves = []
    members: dict[str, list[Mapping[str, Any]]] = {}
    for entry in drawn:
        env = ", ".join(envs) if "env" in by else entry.env
        curve = _curve(entry, _label(entry.run.settings, by), env, x=x, y=y, references=references)
        curves.append(curve)
        members.setdefault(f"{curve.group} on {env}", []).append(entry.run.settings)
    warnings += _warnings(readable, members, y)
    return Grouped(curves=tuple(curves), by=by, x=x, warnings=tuple(warnings))


def _warnings(
    readable: Sequence[_Measured], members: Mapping[str, Sequence[Mapping[str, Any]]], y: str
) -> Iterator[str]:
    """Warns about runs left out, groups that mix settings, and unfinished runs."""
    excluded = [measured.run for measured in readable if not measured.rows]
    if excluded:
        yield f"{_name_runs(excluded)} left out: no {y} recorded"
    for group, settings in members.items():
        keys = dict.fromkeys(filter(_affects_learning, chain(*settings)))
        differing = [key for key in keys if len({_value(saved, key) for saved in settings}) > 1]
        if differing:
            names = join_names(differing, NAMED)
            yield f"{group} mixes runs that differ in {names}; add what matters to --by"
    unfinished = [measured.run for measured in readable if measured.run.status == "running"]
    if unfinished:
        yield f"{_name_runs(unfinished)} still running"


def _readable(runs: Iterable[SavedRun], y: str, warnings: list[str]) -> Iterator[_Measured]:
    """Yields the runs whose settings and metrics can be read; adds a warning for any other run."""
    for run in runs:
        try:
            _ = run.settings
            rows = [row for row in rows_with(run.folder / METRICS, y) if row[y] is not None]
            yield _Measured(run, rows)
        except CheckpointError as error:
            warnings.append(f"left out: {error}")


def differing_settings(settings: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """Returns the settings that differ between runs on the same environment, options first.

    Leaves out settings that are determined by others, such as the n-step returns of an agent.
    """
    keys = dict.fromkeys(filter(_affects_learning, chain(*settings)))
    cells: list[tuple[str, ...]]
    cells = [(_value(saved, "env"), _value(saved, "env.id")) for saved in settings]
    differing = []
    for key in sorted(keys, key=lambda name: (name != "agent", "." in name)):  # sort is stable
        refined = [(*cell, _value(saved, key)) for cell, saved in zip(cells, settings, strict=True)]
        if len(set(refined)) > len(set(cells)):
            differing.append(key)
            cells = refined
    return tuple(differing) or ("agent",)


def _affects_learning(key: str) -> bool:
    return key not in OF_ONE_RUN and key.partition(".")[0] not in ASIDE


def _value(settings: Mapping[str, Any], key: str) -> str:
    """Formats a setting as typed: true, null, [64,64]. An env without a file is shown by its id."""
    if key == "env" and settings.get(key) in (None, "gym"):
        key = "env.id"
    value = settings.get(key, MISSING)
    return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))


def _label(settings: Mapping[str, Any], by: Sequence[str]) -> str:
    """Returns the label of a group: `true` if grouped by one setting, else `dqn, double=true`."""
    bare = by if len(by) == 1 else BARE
    values = ((key, _value(settings, key)) for key in by)
    return ", ".join(
        value if key in bare else f"{key.rpartition('.')[2]}={value}" for key, value in values
    )


def _no_metric(runs: Sequence[SavedRun], y: str) -> str:
    names = sorted({name for run in runs[:NAMED] for name in run.metrics() if name not in X_NAMES})
    if not names:
        return f"{pluralize(len(runs), 'run')}, but none has recorded metrics yet"
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
    points = {row[x]: row[y] for row in rows}  # the last row wins if several have the same x
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


def _name_runs(runs: Sequence[SavedRun]) -> str:
    names = join_names([shortest(run.folder) for run in runs], NAMED)
    return f"{pluralize(len(runs), 'run')} ({names})"
