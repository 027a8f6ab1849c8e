"""A report on the curves of several runs: a curve with an interval per group, final scores,
probabilities of improvement, performance profiles and warnings."""

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
from border_cli.words import join_names, pluralize

THRESHOLDS = 101  # number of points of a performance profile
UNEQUAL = 0.05  # budgets that differ by more than this fraction cause a warning
NAMED = 3  # maximum number of runs listed in a warning
ALL = "all"  # stands for every environment in tables
X_NAMES = {"env_steps": "env steps", "opt_steps": "updates", "time_s": "seconds"}
STATS = {"mean": "mean", "iqm": "IQM"}


@dataclass(frozen=True, slots=True, kw_only=True)
class RunCurve:
    """A metric of a run. x is strictly increasing."""

    name: str  # name of the run in messages
    env: str
    group: str
    x: NDArray[np.float64]  # [T], not empty
    y: NDArray[np.float64]  # [T]
    stopped: bool = False  # reached trainer.stop_at_score: the curve continues at its last value
    normalized: float | None = None  # normalised final y: 0 is the random policy, 100 the expert


class GroupCurve(NamedTuple):
    """The runs of a group on an environment, and the curve that is drawn for them."""

    group: str
    x: NDArray[np.float64]  # [T]
    y: Estimate  # three arrays, [T]
    runs: tuple[RunCurve, ...]

    @property
    def last(self) -> NDArray[np.float64]:
        """The last value of every run, even if the runs differ in length.  [S]"""
        return np.array([run.y[-1] for run in self.runs])

    @property
    def normalized(self) -> NDArray[np.float64]:
        """The last normalised scores; NaN for a run without one.  [S]"""
        return np.array([run.normalized for run in self.runs], np.float64)


class Panel(NamedTuple):
    """The curves of all groups on an environment."""

    env: str
    curves: tuple[GroupCurve, ...]


class FinalScore(NamedTuple):
    """The final scores of a group; for `ALL` environments only the normalised scores are set."""

    env: str
    group: str
    runs: tuple[RunCurve, ...]
    score: Estimate | None
    normalized: Estimate | None

    @property
    def limits(self) -> tuple[float, float]:
        """The lowest and highest score; NaN over all environments."""
        last = [float(run.y[-1]) for run in self.runs] if self.score else [np.nan]
        return min(last), max(last)

    @property
    def budget(self) -> float:
        """The mean length of the runs, in steps or seconds."""
        return float(np.mean([run.x[-1] for run in self.runs]))


class Improvement(NamedTuple):
    """The probability that a run of `group` ends above a run of `other`."""

    group: str
    other: str
    probability: Estimate
    seeds: tuple[int, int]


class Profile(NamedTuple):
    """A performance profile: the fraction of a group's runs that end above each threshold."""

    group: str
    thresholds: NDArray[np.float64]
    shares: Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """All data for plots and tables."""

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
    """Builds a report on at least one run, with a fixed seed. `notes` are additional warnings."""
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
    normalized_scores = _scores_on_all_envs(panels, groups) if len(panels) > 1 else {}
    return Report(
        by=tuple(by),
        x_name=x,
        y_name=y,
        stat=stat,
        groups=groups,
        panels=tuple(panels),
        finals=(*_finals(panels, stat, rng), *_over_envs(runs, normalized_scores, stat, rng)),
        improvements=tuple(_improvements(panels, groups, rng)),
        profiles=tuple(_profiles(normalized_scores, rng)),
        warnings=(*notes, *(line for panel in panels for line in _warnings(panel, x))),
    )


def _over_seeds(values: NDArray[np.float64], stat: str, rng: np.random.Generator) -> Estimate:
    return mean_over_seeds(values) if stat == "mean" else iqm_over_seeds(values, rng)


def on_one_grid(
    runs: Sequence[RunCurve], *, hold: bool
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Interpolates all runs at common steps; returns the steps and the values.  [T], [S, T]

    The curve ends where the shortest run ends. Runs that reached their stop score, and with `hold`
    all runs, do not shorten it: they continue at their last value. The steps are the first one
    that all runs have reached and the later evaluations of the run that ends the curve, because
    values interpolated between evaluations vary less between runs than the evaluations do. If that
    run ends before another one begins, the curve is a single point, with its last value.
    """
    limiting = [run for run in runs if not (hold or run.stopped)]
    if limiting:
        last_run = min(limiting, key=lambda run: run.x[-1])
    else:
        last_run = max(runs, key=lambda run: run.x[-1])
    first = max(run.x[0] for run in runs)
    x = np.append(first, last_run.x[last_run.x > first])
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


def _scores_on_all_envs(panels: Sequence[Panel], groups: Sequence[str]) -> dict[str, Scores]:
    """Returns the normalised scores of the groups that have them on all environments."""
    scores_by_group: dict[str, Scores] = {}
    for group in groups:
        curves = [curve for panel in panels for curve in panel.curves if curve.group == group]
        scores = [curve.normalized for curve in curves]
        if len(scores) == len(panels) and not np.isnan(np.hstack(scores)).any():
            scores_by_group[group] = scores
    return scores_by_group


def _over_envs(
    runs: Sequence[RunCurve],
    normalized_scores: Mapping[str, Scores],
    stat: str,
    rng: np.random.Generator,
) -> Iterator[FinalScore]:
    """Aggregates normalised scores over environments; each environment is resampled separately."""
    statistic: Statistic = mean if stat == "mean" else iqm
    for group, scores in normalized_scores.items():
        normalized = bootstrap(statistic, scores, resampled(map(len, scores), rng))
        group_runs = tuple(run for run in runs if run.group == group)
        yield FinalScore(ALL, group, group_runs, None, normalized)


def _improvements(
    panels: Sequence[Panel], groups: Sequence[str], rng: np.random.Generator
) -> Iterator[Improvement]:
    """Compares all pairs of groups on their common environments; the better group comes first."""
    last = {(panel.env, curve.group): curve.last for panel in panels for curve in panel.curves}
    for pair in combinations(groups, 2):
        shared = [env for env, _ in panels if all((env, group) in last for group in pair)]
        if not shared:
            continue
        scores = {group: [last[env, group] for env in shared] for group in pair}
        better, worse = pair if improvement(*scores.values()) >= 0.5 else pair[::-1]
        probability = improvement_estimate(scores[better], scores[worse], rng)
        seeds = sum(map(len, scores[better])), sum(map(len, scores[worse]))
        yield Improvement(better, worse, probability, seeds)


def _profiles(
    normalized_scores: Mapping[str, Scores], rng: np.random.Generator
) -> Iterator[Profile]:
    """Computes the groups' performance profiles over all environments, at common thresholds."""
    all_scores = np.hstack([0.0, 100.0, *chain(*normalized_scores.values())])
    thresholds = np.linspace(all_scores.min(), all_scores.max(), THRESHOLDS)
    for group, scores in normalized_scores.items():
        indices = resampled(map(len, scores), rng)
        yield Profile(group, thresholds, bootstrap(profile(thresholds), scores, indices))


def _warnings(panel: Panel, x: str) -> Iterator[str]:
    """Warns about single seeds and unequal budgets."""
    for curve in panel.curves:
        if len(curve.runs) == 1:
            yield f"{curve.group} on {panel.env}: one seed, so it has no interval"
    runs = [run for group in panel.curves for run in group.runs if not run.stopped]
    most = max((run.x[-1] for run in runs), default=0.0)
    short = [run for run in runs if most - run.x[-1] > UNEQUAL * most]
    if short:
        names, least = (
            join_names([run.name for run in short], NAMED),
            min(run.x[-1] for run in short),
        )
        yield (
            f"unequal budgets on {panel.env}: {least:,.0f} to {most:,.0f} {X_NAMES[x]}, "
            f"{pluralize(len(short), 'run')} ended early ({names}); final scores are those at each "
            "run's own end"
        )
