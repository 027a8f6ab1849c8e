"""Which trial of a study is trained next, and which one ends.

Li et al. 2020, "A System for Massively Parallel Hyperparameter Tuning", Algorithm 2 (ASHA): a trial
is trained to the first of several budgets, the rungs, and waits there. The top 1/`reduction` of a
rung are promoted to the next one. Here a promoted trial resumes from its checkpoints, a trial that
is significantly worse than the best one of its rung is pruned early, and what both rules leave
undecided is promoted in the end, as far as the study's budget reaches.

The comparison is the moderated t of Smyth 2004, "Linear models and empirical Bayes methods for
assessing differential expression in microarray experiments": few seeds say little about the
variance of one difference, so it is drawn towards that of all trials at the rung.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from border_cli.errors import ConfigError

PRIOR_DEGREES = 4  # what the variance pooled over a rung weighs, in degrees of freedom


class Score(StrEnum):
    """Which evaluations of a run make its score."""

    last = "last"  # the mean of the last ones
    best = "best"  # the highest one
    auc = "auc"  # the mean of all


class What(StrEnum):
    """What a free process does next."""

    start = "start"  # a new trial, to the first rung
    promote = "promote"  # a trial, to its next rung
    prune = "prune"  # a trial ends where it is; then ask again
    wait = "wait"  # until another process has finished
    finish = "finish"  # every trial has ended


class Step(NamedTuple):
    """A decision, and the trial that it is about."""

    what: What
    number: int | None = None


@dataclass(frozen=True)
class Standing:
    """A trial as far as it is."""

    number: int
    samples: tuple[NDArray[np.float64], ...] = ()  # per rung reached: [S, K], K evaluations count
    busy: bool = False  # on its way to rung len(samples)
    ended: bool = False  # complete, pruned or failed


@dataclass(frozen=True)
class Terms:
    """What a study may cost, and how sure it must be to prune."""

    budgets: tuple[int, ...]  # steps of each rung, the last one is full training
    trials: int
    reduction: int  # of the trials at a rung, one in `reduction` is promoted without a test
    risk: float  # a trial is pruned if its chance of being better than the best is lower
    budget: float  # share of what full training of all trials costs


class _Waiting(NamedTuple):
    number: int
    rung: int
    place: int  # 0: the best of all that have reached the rung
    reached: int  # how many have
    chance: float  # of being better than the best


def rung_budgets(full: int, *, rungs: int, reduction: int, interval: int) -> tuple[int, ...]:
    """full / reduction^k steps for each rung, rounded up to evaluations; the last is `full`."""
    exact = [full / reduction**k for k in reversed(range(rungs))]
    steps = [min(full, math.ceil(each / interval) * interval) for each in exact]
    if len(set(steps)) < rungs:
        raise ConfigError(
            f"rungs={rungs} with reduction={reduction} needs more evaluations: {full:,} steps with "
            f"one every {interval:,} make two rungs equal; choose fewer rungs, a smaller "
            "reduction or a smaller trainer.eval_interval"
        )
    return tuple(steps)


def counted(curve: Sequence[float], score: Score, last_evals: int) -> list[float]:
    """The evaluations of one run so far that count; `last` takes at most the later half."""
    if score is Score.best:
        return [max(curve)]
    last = min(last_evals, max(1, len(curve) // 2))
    return list(curve if score is Score.auc else curve[-last:])


def chances(samples: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
    """For each trial at a rung, P(it is better than the best one there), 0.5 for that one.  [N]

    Trials have met the same seeds and are evaluated at the same steps, so that differences are
    paired. One seed has no variance: no trial is significantly worse then.
    """
    means = np.stack([each.mean(axis=1) for each in samples])  # [N, S]
    behind = means[means.mean(axis=1).argmax()] - means
    trials, seeds = means.shape
    if min(seeds, trials) == 1:
        return np.full(trials, 0.5)
    own = behind.var(axis=1, ddof=1)
    pooled = own.sum() / (trials - 1)  # the best one has no difference from itself
    degrees = PRIOR_DEGREES + seeds - 1
    variance = (PRIOR_DEGREES * pooled + (seeds - 1) * own) / degrees
    error = np.sqrt(variance / seeds)
    return t_tail(behind.mean(axis=1) / np.maximum(error, np.finfo(float).tiny), degrees)


def t_tail(t: NDArray[np.float64], degrees: int) -> NDArray[np.float64]:
    """P(T > t) of Student's t distribution, t >= 0."""
    angle, above = _t_table(degrees)
    return np.interp(np.arctan(t / math.sqrt(degrees)), angle, above)


@lru_cache
def _t_table(degrees: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """P(T > sqrt(degrees) tan(a)): half the integral of cos(a)^(degrees - 1) from a on."""
    angle = np.linspace(0.0, math.pi / 2, 10_001)
    density = np.cos(angle) ** (degrees - 1)
    within = np.append(0.0, np.cumsum(density[1:] + density[:-1]))
    return angle, 0.5 - 0.5 * within / within[-1]


def next_step(trials: Sequence[Standing], terms: Terms) -> Step:
    """The next thing to do for a process that is free."""
    waiting = [
        each for rung in reversed(range(len(terms.budgets) - 1)) for each in _at(rung, trials)
    ]
    full = terms.budgets[-1]
    unstarted = max(0, terms.trials - len(trials))
    left = terms.budget * terms.trials * full - _spent(trials, terms) - unstarted * terms.budgets[0]

    for each in waiting:
        cost = terms.budgets[each.rung + 1] - terms.budgets[each.rung]
        if each.place < each.reached // terms.reduction and cost <= left:
            return Step(What.promote, each.number)
    for each in waiting:
        if each.chance < terms.risk:
            return Step(What.prune, each.number)
    if unstarted:
        return Step(What.start)
    for each in sorted(waiting, key=lambda each: (-each.chance, each.place)):
        if full - terms.budgets[each.rung] <= left or _first(each, trials):
            return Step(What.promote, each.number)
    if waiting:
        return Step(What.prune, waiting[-1].number)
    return Step(What.wait if any(each.busy for each in trials) else What.finish)


def _at(rung: int, trials: Sequence[Standing]) -> list[_Waiting]:
    """The trials that wait at a rung, the best one first."""
    reached = [each for each in trials if len(each.samples) > rung]
    if not reached:
        return []
    samples = [each.samples[rung] for each in reached]
    chance = chances(samples)
    order = np.argsort([-each.mean() for each in samples], kind="stable")
    return [
        _Waiting(reached[i].number, rung, place, len(reached), float(chance[i]))
        for place, i in enumerate(order)
        if len(reached[i].samples) == rung + 1 and not (reached[i].busy or reached[i].ended)
    ]


def _spent(trials: Sequence[Standing], terms: Terms) -> int:
    """Steps of one seed that all trials have taken or are about to take."""
    rungs = [len(each.samples) + each.busy for each in trials]
    return sum(terms.budgets[each - 1] for each in rungs if each)


def _first(waiting: _Waiting, trials: Sequence[Standing]) -> bool:
    """Whether it is the best of its rung, and no other one is beyond or on its way."""
    return waiting.place == 0 and all(
        len(each.samples) + each.busy <= waiting.rung + 1 for each in trials
    )
