"""From the curves of single runs to what is shown of them: one curve per group with its interval,
final scores, probabilities of improvement, performance profiles, and warnings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from border_cli.analysis.statistics import (
    Estimate,
    Scores,
    Statistic,
    bootstrap,
    improvement_estimate,
    iqm,
    iqm_over_seeds,
    mean,
    mean_over_seeds,
    profile,
    resampled,
)
from border_cli.core.words import counted, listed

POINTS = 200  # of a curve whose runs were not evaluated at the same steps
THRESHOLDS = 101  # of a performance profile
UNEQUAL = 0.05  # budgets that differ by more are named
NAMED = 3  # runs in one warning
ALL = "all"  # stands for every environment in tables
X_NAMES = {"env_steps": "env steps", "opt_steps": "updates", "time_s": "seconds"}
STATS = {"mean": "mean", "iqm": "IQM"}


@dataclass(frozen=True, slots=True, kw_only=True)
class RunCurve:
    """One metric of one run. x rises strictly."""

    name: str  # what messages call the run
    env: str
    group: str
    x: NDArray[np.float64]  # [T], at least one
    y: NDArray[np.float64]  # [T]
    budget: float  # steps at its end, in `budget_unit`
    budget_unit: str = "env steps"
    stopped: bool = False  # it reached trainer.stop_at_score: its last value holds to the end
    normalized: float | None = None  # of the last y: 0 is the random policy, 100 the expert


class GroupCurve(NamedTuple):
    """The runs of one group on one environment, and what is drawn of them."""

    group: str
    x: NDArray[np.float64]  # [T]
    y: Estimate  # each [T]
    runs: tuple[RunCurve, ...]


class Panel(NamedTuple):
    """Every group on one environment."""

    env: str
    curves: tuple[GroupCurve, ...]


class FinalScore(NamedTuple):
    """The last values of the runs of one group; over all environments only the normalised are."""

    env: str
    group: str
    seeds: int
    score: Estimate | None
    lowest: float
    highest: float
    normalized: Estimate | None
    budget: float  # mean
    budget_unit: str


class Improvement(NamedTuple):
    """The probability that a run of `group` ends above one of `other`."""

    group: str
    other: str
    probability: Estimate
    seeds: tuple[int, int]


class Profile(NamedTuple):
    """The share of runs of one group that end above each normalised score."""

    group: str
    thresholds: NDArray[np.float64]
    shares: Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Everything that is drawn and written."""

    by: tuple[str, ...]
    x_name: str
    y_name: str
    stat: str
    groups: tuple[str, ...]  # in the order of the legend
    panels: tuple[Panel, ...]
    finals: tuple[FinalScore, ...]
    improvements: tuple[Improvement, ...]
    profiles: tuple[Profile, ...] = ()
    warnings: tuple[str, ...] = field(default=())


def report(
    runs: Sequence[RunCurve],
    *,
    by: Sequence[str],
    x: str,
    y: str,
    stat: str,
    hold: bool = False,
    notes: Sequence[str] = (),
) -> Report:
    """Of at least one run; the same runs give the same numbers. `notes` are further warnings."""
    rng = np.random.default_rng(0)
    groups = tuple(dict.fromkeys(run.group for run in runs))
    panels = tuple(
        panel([run for run in runs if run.env == env], env=env, stat=stat, hold=hold, rng=rng)
        for env in dict.fromkeys(run.env for run in runs)
    )
    return Report(
        by=tuple(by),
        x_name=x,
        y_name=y,
        stat=stat,
        groups=groups,
        panels=panels,
        finals=(*_finals(panels, stat, rng), *_over_envs(panels, groups, stat, rng)),
        improvements=tuple(_improvements(panels, groups, rng)),
        profiles=tuple(_profiles(panels, groups, rng)),
        warnings=(*notes, *(warning for each in panels for warning in _warnings(each, hold=hold))),
    )


def panel(
    runs: Sequence[RunCurve], *, env: str, stat: str, hold: bool, rng: np.random.Generator
) -> Panel:
    """The curves of one environment, groups in the order of their first runs."""
    groups = dict.fromkeys(run.group for run in runs)
    each = ([run for run in runs if run.group == group] for group in groups)
    return Panel(env, tuple(_group_curve(members, stat, hold, rng) for members in each))


def _group_curve(
    runs: Sequence[RunCurve], stat: str, hold: bool, rng: np.random.Generator
) -> GroupCurve:
    x, values = on_one_grid(runs, hold=hold)
    return GroupCurve(runs[0].group, x, _over_seeds(values, stat, rng), tuple(runs))


def _over_seeds(values: NDArray[np.float64], stat: str, rng: np.random.Generator) -> Estimate:
    return mean_over_seeds(values) if stat == "mean" else iqm_over_seeds(values, rng)


def on_one_grid(
    runs: Sequence[RunCurve], *, hold: bool
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Common steps, and every run's value there.  [T], [S, T]

    The steps are those of the evaluations where all runs have the same; else values between two
    evaluations are interpolated. The curve ends with the first run that ends, but for runs that
    reached the score at which they stop: those, and with `hold` all runs, keep their last value.
    """
    if all(np.array_equal(run.x, runs[0].x) for run in runs):
        return runs[0].x, np.stack([run.y for run in runs])
    open_ends = [run.x[-1] for run in runs if not (hold or run.stopped)]
    last = min(open_ends) if open_ends else max(run.x[-1] for run in runs)
    first = max(run.x[0] for run in runs)
    x = np.linspace(first, max(first, last), POINTS)
    if all(np.all(run.x == np.round(run.x)) for run in runs):
        x = np.round(x)  # steps are whole
    x = np.unique(x)
    return x, np.stack([np.interp(x, run.x, run.y) for run in runs])


def _last(curve: GroupCurve) -> NDArray[np.float64]:
    """The last value of every run, whatever the others' budget.  [S]"""
    return np.array([run.y[-1] for run in curve.runs])


def _normalized(curve: GroupCurve) -> NDArray[np.float64] | None:
    """The last normalised scores; None where a run knows none.  [S]"""
    found = [run.normalized for run in curve.runs if run.normalized is not None]
    return np.array(found) if len(found) == len(curve.runs) else None


def _finals(panels: Sequence[Panel], stat: str, rng: np.random.Generator) -> Iterator[FinalScore]:
    for env, curves in panels:
        for curve in curves:
            last, normalized = _last(curve), _normalized(curve)
            yield FinalScore(
                env=env,
                group=curve.group,
                seeds=len(last),
                score=_over_seeds(last, stat, rng),
                lowest=float(last.min()),
                highest=float(last.max()),
                normalized=None if normalized is None else _over_seeds(normalized, stat, rng),
                budget=float(np.mean([run.budget for run in curve.runs])),
                budget_unit=curve.runs[0].budget_unit,
            )


def _everywhere(panels: Sequence[Panel], group: str) -> list[GroupCurve]:
    """The curves of a group; empty unless it was run on every environment."""
    found = [curve for each in panels for curve in each.curves if curve.group == group]
    return found if len(found) == len(panels) else []


def _normalized_everywhere(panels: Sequence[Panel], group: str) -> Scores:
    known = [_normalized(curve) for curve in _everywhere(panels, group)]
    found = [each for each in known if each is not None]
    return found if len(found) == len(known) else []


def _over_envs(
    panels: Sequence[Panel], groups: Sequence[str], stat: str, rng: np.random.Generator
) -> Iterator[FinalScore]:
    """The normalised scores over several environments, resampled within each."""
    statistic: Statistic = mean if stat == "mean" else iqm
    for group in groups if len(panels) > 1 else ():
        scores = _normalized_everywhere(panels, group)
        if not scores:
            continue
        runs = [run for curve in _everywhere(panels, group) for run in curve.runs]
        yield FinalScore(
            env=ALL,
            group=group,
            seeds=len(runs),
            score=None,
            lowest=np.nan,
            highest=np.nan,
            normalized=bootstrap(statistic, scores, resampled([len(each) for each in scores], rng)),
            budget=float(np.mean([run.budget for run in runs])),
            budget_unit=runs[0].budget_unit,
        )


def _improvements(
    panels: Sequence[Panel], groups: Sequence[str], rng: np.random.Generator
) -> Iterator[Improvement]:
    """Of every two groups, the better one first; on the environments that both were run on."""
    for group, other in combinations(groups, 2):
        pairs = [
            (_last(curves[group]), _last(curves[other]))
            for each in panels
            if {group, other} <= (curves := {curve.group: curve for curve in each.curves}).keys()
        ]
        if not pairs:
            continue
        ours, theirs = ([pair[side] for pair in pairs] for side in (0, 1))
        seeds = sum(map(len, ours)), sum(map(len, theirs))
        found = improvement_estimate(ours, theirs, rng)
        if found.mid >= 0.5:
            yield Improvement(group, other, found, seeds)
        else:
            turned = Estimate(1 - found.mid, 1 - found.high, 1 - found.low)
            yield Improvement(other, group, turned, seeds[::-1])


def _profiles(
    panels: Sequence[Panel], groups: Sequence[str], rng: np.random.Generator
) -> Iterator[Profile]:
    """Of the groups with normalised scores on several environments, with common thresholds."""
    known = {
        group: scores
        for group in (groups if len(panels) > 1 else ())
        if (scores := _normalized_everywhere(panels, group))
    }
    if not known:
        return
    every = np.concatenate([each for scores in known.values() for each in scores])
    thresholds = np.linspace(min(0.0, every.min()), max(100.0, every.max()), THRESHOLDS)
    for group, scores in known.items():
        indices = resampled([len(each) for each in scores], rng)
        yield Profile(group, thresholds, bootstrap(profile(thresholds), scores, indices))


def _warnings(panel: Panel, *, hold: bool) -> Iterator[str]:
    """What a reader of the curves must know: single seeds and unequal budgets."""
    for curve in panel.curves:
        if len(curve.runs) == 1:
            yield f"{curve.group} on {panel.env}: one seed, so it has no interval"
    runs = [run for each in panel.curves for run in each.runs if not run.stopped]
    most = max((run.budget for run in runs), default=0.0)
    short = [run for run in runs if most - run.budget > UNEQUAL * most]
    if not short:
        return
    named = listed([run.name for run in short], NAMED)
    least = min(run.budget for run in short)
    ends = "its last value is held" if hold else "a curve ends with the first of its runs"
    yield (
        f"unequal budgets on {panel.env}: {least:,.0f} to {most:,.0f} {short[0].budget_unit}, "
        f"{counted(len(short), 'run')} ended early ({named}); {ends}, and final scores are "
        "those at each run's own end"
    )
