"""From run directories to curves in groups: what a group is called, and what it leaves out."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from border_cli.analysis.curves import NAMED, X_NAMES, RunCurve
from border_cli.analysis.load import Run
from border_cli.errors import CheckpointError, ConfigError
from border_cli.words import counted, did_you_mean, listed, shortest, unknown

SCORE, NORMALIZED = "eval/return", "eval/normalized_score"
STOPPED = "stop_at_score reached"  # an exit reason
BARE = ("agent", "env")  # keys that a label need not name
OF_ONE_RUN = {
    *("seed", "name", "quiet", "statistics", "imports", "objective", "device"),
    *(f"trainer.max_{each}" for each in ("opt_steps", "env_steps", "time_s")),
}
ASIDE = ("recorder", "checkpoint")  # groups that do not change what is learned
MISSING = "–"  # the value of a setting that a run does not have

Reference = tuple[float, float]  # the returns of the random policy and of the expert


class _Measured(NamedTuple):
    """A run and the metric that is drawn of it."""

    run: Run
    env_steps: NDArray[np.float64]  # [n]
    values: NDArray[np.float64]  # [n]

    @property
    def env(self) -> str:
        return self.run.env or MISSING

    @property
    def offline(self) -> bool:
        return not self.env_steps[-1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Grouped:
    """The curves of runs, how they are grouped, and what a reader must know about it."""

    curves: tuple[RunCurve, ...]
    by: tuple[str, ...]
    x: str
    warnings: tuple[str, ...]


def grouped(
    runs: Sequence[Run],
    *,
    by: Sequence[str] = (),
    x: str | None = None,
    y: str = SCORE,
    references: Mapping[str, Reference] | None = None,
) -> Grouped:
    """`by`: dotted settings, by default those that differ; `x`: by default env steps, or updates
    where no run has stepped an environment. `references`: returns by environment.

    Raises `ConfigError` for settings and metrics that no run has.
    """
    warnings: list[str] = []
    known = list(_readable(runs, y, warnings))
    settings = [each.run.settings for each in known]
    names = dict.fromkeys(key for each in settings for key in each)
    for key in by:
        if key not in names:
            raise ConfigError(f"--by: no run has the setting {key!r}{did_you_mean(key, names)}")
    by = tuple(dict.fromkeys(by)) or swept(settings)
    drawn = [each for each in known if len(each.values)]
    if not drawn:
        raise ConfigError("; ".join([_no_metric([each.run for each in known], y), *warnings]))
    x = _position(drawn, x)
    envs = list(dict.fromkeys(each.env for each in drawn))
    for env in references or ():
        if env not in envs:
            raise ConfigError(f"--reference: {unknown('env', env, envs)}")
    members: dict[tuple[str, str], list[_Measured]] = {}
    for each in drawn:
        env = ", ".join(envs) if "env" in by else each.env
        members.setdefault((_label(each.run.settings, by), env), []).append(each)
    curves = [
        _curve(each, group, env, x=x, y=y, references=references or {})
        for (group, env), seeds in members.items()
        for each in seeds
    ]
    warnings += _warnings(known, members, y)
    return Grouped(curves=tuple(curves), by=by, x=x, warnings=tuple(warnings))


def _warnings(
    known: Sequence[_Measured], members: Mapping[tuple[str, str], Sequence[_Measured]], y: str
) -> Iterator[str]:
    """Warnings about runs left out, groups that mix settings, and runs that still run."""
    without = [each.run for each in known if not len(each.values)]
    if without:
        yield f"{_named(without)} left out: no {y} recorded"
    for (group, env), seeds in members.items():
        settings = [each.run.settings for each in seeds]
        keys = dict.fromkeys(key for each in settings for key in each if _counts(key))
        differing = [key for key in keys if len({_value(each, key) for each in settings}) > 1]
        if differing:
            named = listed(differing, NAMED)
            yield f"{group} on {env} mixes runs that differ in {named}; add what matters to --by"
    unfinished = [each.run for each in known if each.run.status in ("running", "starting")]
    if unfinished:
        yield f"{_named(unfinished)} still running"


def _readable(runs: Iterable[Run], y: str, warnings: list[str]) -> Iterator[_Measured]:
    """The runs whose settings and metrics can be read; the others are named in `warnings`."""
    for run in runs:
        try:
            _ = run.settings
            yield _Measured(run, *run.points(y))
        except CheckpointError as error:
            warnings.append(f"left out: {error}")


def swept(settings: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """The settings that differ between the runs on one environment, options before single values.

    What follows from another (the n-step returns of one agent) is not among them.
    """
    keys = dict.fromkeys(key for each in settings for key in each if _counts(key))
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
    values = {key: _value(settings, key) for key in by}
    if len(by) == 1:
        return values[by[0]]
    return ", ".join(
        value if key in BARE else f"{key.rpartition('.')[2]}={value}"
        for key, value in values.items()
    )


def _no_metric(runs: Sequence[Run], y: str) -> str:
    names = sorted({name for run in runs[:NAMED] for name in run.metrics() if name not in X_NAMES})
    if not names:
        return f"{counted(len(runs), 'run')}, but none has recorded metrics yet"
    return f"--y: {unknown('metric', y, names)}"


def _position(runs: Sequence[_Measured], x: str | None) -> str:
    offline = all(each.offline for each in runs)
    if offline and x == "env_steps":
        raise ConfigError("--x must be opt_steps or time_s: these runs have stepped no environment")
    return x or ("opt_steps" if offline else "env_steps")


def _curve(
    measured: _Measured,
    group: str,
    env: str,
    *,
    x: str,
    y: str,
    references: Mapping[str, Reference],
) -> RunCurve:
    run = measured.run
    at, values = (measured.env_steps, measured.values) if x == "env_steps" else run.points(y, x)
    score = float(values[-1])
    # In the order of x; of equal ones the last
    at, last = np.unique(at[::-1], return_index=True)
    return RunCurve(
        name=str(shortest(run.folder)),
        env=env,
        group=group,
        x=at,
        y=values[::-1][last],
        stopped=run.facts.get("exit_reason") == STOPPED,
        normalized=_normalized(measured, score, references) if y == SCORE else None,
    )


def _normalized(
    measured: _Measured, score: float, references: Mapping[str, Reference]
) -> float | None:
    if measured.env in references:
        low, high = references[measured.env]
        return 100 * (score - low) / (high - low)
    recorded = measured.run.points(NORMALIZED)[1]
    return float(recorded[-1]) if len(recorded) else None


def _named(runs: Sequence[Run]) -> str:
    names = listed([shortest(run.folder) for run in runs], NAMED)
    return f"{counted(len(runs), 'run')} ({names})"
