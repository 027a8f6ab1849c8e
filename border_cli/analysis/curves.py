"""From the curves of single runs to what is shown of them: one curve per group with its interval,
final scores, probabilities of improvement, performance profiles, and warnings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, combinations
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from border_cli.analysis.statistics import (
    Estimate,
    Scores,
    Statistic,
    bootstrap,
    improvement,
    improvement_estimate,
    iqm,
    iqm_over_seeds,
    mean,
    mean_over_seeds,
    profile,
    resampled,
)
from border_cli.words import counted, listed

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
    stopped: bool = False  # it reached trainer.stop_at_score: its last value holds to the end
    normalized: float | None = None  # of the last y: 0 is the random policy, 100 the expert


class GroupCurve(NamedTuple):
    """The runs of one group on one environment, and what is drawn of them."""

    group: str
    x: NDArray[np.float64]  # [T]
    y: Estimate  # each [T]
    runs: tuple[RunCurve, ...]

    @property
    def last(self) -> NDArray[np.float64]:
        """The last value of every run, wherever the others end.  [S]"""
        return np.array([run.y[-1] for run in self.runs])

    @property
    def normalized(self) -> NDArray[np.float64]:
        """The last normalised scores; NaN of a run that knows none.  [S]"""
        return np.array([run.normalized for run in self.runs], np.float64)


class Panel(NamedTuple):
    """Every group on one environment."""

    env: str
    curves: tuple[GroupCurve, ...]


class FinalScore(NamedTuple):
    """The last values of the runs of one group; over all environments only the normalised are."""

    env: str
    group: str
    runs: tuple[RunCurve, ...]
    score: Estimate | None
    normalized: Estimate | None

    @property
    def limits(self) -> tuple[float, float]:
        """The lowest and the highest score; NaN over all environments."""
        last = [float(run.y[-1]) for run in self.runs] if self.score else [np.nan]
        return min(last), max(last)

    @property
    def budget(self) -> float:
        """The mean of the steps, or seconds, at which the runs end."""
        return float(np.mean([run.x[-1] for run in self.runs]))


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
    warnings: tuple[str, ...] = ()


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
    """A report on at least one run, the same whenever it is made. `notes` are further warnings."""
    rng = np.random.default_rng(0)
    groups = tuple(dict.fromkeys(run.group for run in runs))
    panels = []
    for env in dict.fromkeys(run.env for run in runs):
        curves = []
        for group in groups:
            seeds = [run for run in runs if (run.env, run.group) == (env, group)]
            if seeds:
                steps, values = on_one_grid(seeds, hold=hold)
                over_seeds = _over_seeds(values, stat, rng)
                curves.append(GroupCurve(group, steps, over_seeds, tuple(seeds)))
        panels.append(Panel(env, tuple(curves)))
    everywhere = _normalized_everywhere(panels, groups) if len(panels) > 1 else {}
    return Report(
        by=tuple(by),
        x_name=x,
        y_name=y,
        stat=stat,
        groups=groups,
        panels=tuple(panels),
        finals=(*_finals(panels, stat, rng), *_over_envs(runs, everywhere, stat, rng)),
        improvements=tuple(_improvements(panels, groups, rng)),
        profiles=tuple(_profiles(everywhere, rng)),
        warnings=(*notes, *(line for each in panels for line in _warnings(each, x))),
    )


def _over_seeds(values: NDArray[np.float64], stat: str, rng: np.random.Generator) -> Estimate:
    return mean_over_seeds(values) if stat == "mean" else iqm_over_seeds(values, rng)


def on_one_grid(
    runs: Sequence[RunCurve], *, hold: bool
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Common steps, and every run's value there.  [T], [S, T]

    The curve ends with the first run that ends, but for runs that reached the score at which they
    stop: those, and with `hold` all runs, keep their last value. The steps are the evaluations of
    the run with which it ends, and no others: halfway between evaluations interpolated values of
    several runs lie closer together than the runs do.
    """
    open_ended = [run for run in runs if not (hold or run.stopped)]
    if open_ended:
        ending = min(open_ended, key=lambda run: run.x[-1])
    else:
        ending = max(runs, key=lambda run: run.x[-1])
    first = max(run.x[0] for run in runs)
    x = np.append(first, ending.x[ending.x > first])
    return x, np.stack([np.interp(x, run.x, run.y) for run in runs])


def _finals(panels: Sequence[Panel], stat: str, rng: np.random.Generator) -> Iterator[FinalScore]:
    for env, curves in panels:
        for curve in curves:
            score, normalized = _over_seeds(curve.last, stat, rng), curve.normalized
            yield FinalScore(
                env,
                curve.group,
                curve.runs,
                score,
                None if np.isnan(normalized).any() else _over_seeds(normalized, stat, rng),
            )


def _normalized_everywhere(panels: Sequence[Panel], groups: Sequence[str]) -> dict[str, Scores]:
    """Normalised scores of the groups that know them on every environment."""
    found: dict[str, Scores] = {}
    for group in groups:
        curves = [curve for each in panels for curve in each.curves if curve.group == group]
        scores = [curve.normalized for curve in curves]
        if len(scores) == len(panels) and not np.isnan(np.hstack(scores)).any():
            found[group] = scores
    return found


def _over_envs(
    runs: Sequence[RunCurve],
    everywhere: Mapping[str, Scores],
    stat: str,
    rng: np.random.Generator,
) -> Iterator[FinalScore]:
    """The normalised scores over several environments, resampled within each."""
    statistic: Statistic = mean if stat == "mean" else iqm
    for group, scores in everywhere.items():
        normalized = bootstrap(statistic, scores, resampled(map(len, scores), rng))
        ours = tuple(run for run in runs if run.group == group)
        yield FinalScore(ALL, group, ours, None, normalized)


def _improvements(
    panels: Sequence[Panel], groups: Sequence[str], rng: np.random.Generator
) -> Iterator[Improvement]:
    """Probabilities for every two groups, the better one first, on the environments of both."""
    last = {(each.env, curve.group): curve.last for each in panels for curve in each.curves}
    for pair in combinations(groups, 2):
        shared = [env for env, _ in panels if all((env, group) in last for group in pair)]
        if not shared:
            continue
        scores = {group: [last[env, group] for env in shared] for group in pair}
        better, worse = pair if improvement(*scores.values()) >= 0.5 else pair[::-1]
        found = improvement_estimate(scores[better], scores[worse], rng)
        seeds = sum(map(len, scores[better])), sum(map(len, scores[worse]))
        yield Improvement(better, worse, found, seeds)


def _profiles(everywhere: Mapping[str, Scores], rng: np.random.Generator) -> Iterator[Profile]:
    """Performance profiles of groups over several environments, at common thresholds."""
    every = np.hstack([0.0, 100.0, *chain(*everywhere.values())])
    thresholds = np.linspace(every.min(), every.max(), THRESHOLDS)
    for group, scores in everywhere.items():
        indices = resampled(map(len, scores), rng)
        yield Profile(group, thresholds, bootstrap(profile(thresholds), scores, indices))


def _warnings(panel: Panel, x: str) -> Iterator[str]:
    """Warnings about single seeds and unequal budgets."""
    for curve in panel.curves:
        if len(curve.runs) == 1:
            yield f"{curve.group} on {panel.env}: one seed, so it has no interval"
    runs = [run for each in panel.curves for run in each.runs if not run.stopped]
    most = max((run.x[-1] for run in runs), default=0.0)
    short = [run for run in runs if most - run.x[-1] > UNEQUAL * most]
    if short:
        named, least = listed([run.name for run in short], NAMED), min(run.x[-1] for run in short)
        yield (
            f"unequal budgets on {panel.env}: {least:,.0f} to {most:,.0f} {X_NAMES[x]}, "
            f"{counted(len(short), 'run')} ended early ({named}); final scores are those at each "
            "run's own end"
        )
