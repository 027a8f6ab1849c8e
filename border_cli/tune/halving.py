"""Which trial of a study is trained next, and which one ends.

Li et al. 2020, "A System for Massively Parallel Hyperparameter Tuning", Algorithm 2 (ASHA): a trial
is trained to the first of several budgets, the rungs, and waits there; the top 1/`reduction` of a
rung are promoted. Here a promoted trial resumes from its checkpoints, and both ends of a rung are
treated alike: of its worst third, trials are pruned early if they are significantly worse than the
best one. What lies between waits until all trials have started, and is then promoted, the most
promising first, as far as the study's budget reaches. Slow starters live on that: to prune every
trial that is significantly worse costs twice as many best ones (docs/benchmarks.md).

The comparison is the moderated t of Smyth 2004, "Linear models and empirical Bayes methods for
assessing differential expression in microarray experiments": few seeds say little about the
variance of one difference, so it is drawn towards the mean of all at the rung. The prior degrees of
freedom are fixed, not estimated.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from border_cli.errors import ConfigError

PRIOR_DEGREES = 4  # at most: weight of the pooled variance, in degrees of freedom
WORST = 3  # one in three at a rung, the worst, may be pruned before all have started
EARLY = 1 / 2  # of what may be spent beyond the first rung, before all have started

Floats: TypeAlias = NDArray[np.float64]
Compare: TypeAlias = Callable[[Floats], Floats]  # what `chances` does


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
    samples: tuple[Floats, ...] = ()  # per rung reached: [S, K], K evaluations that count
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
    chance: float


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
    """The evaluations of one run so far that count; of few, `last` takes the later half."""
    if score is Score.best:
        return [max(curve)]
    if score is Score.auc:
        return list(curve)
    return list(curve[-min(last_evals, max(1, len(curve) // 2)) :])


def chances(samples: Floats) -> Floats:
    """P(a trial is better than the best one at its rung), 0.5 for that one.  [N, S, K] -> [N]

    Trials have the same seeds and are evaluated at the same steps, so differences are paired. One
    seed has no variance: no trial is significantly worse then.
    """
    from scipy.special import stdtr

    means = samples.mean(axis=2)  # [N, S]
    trials, seeds = means.shape
    if min(trials, seeds) == 1:
        return np.full(trials, 0.5)
    behind = means[means.mean(axis=1).argmax()] - means
    own = behind.var(axis=1, ddof=1)
    pooled = own.sum() / (trials - 1)  # the best one does not differ from itself
    prior = min(PRIOR_DEGREES, (trials - 2) * (seeds - 1))  # what others know of the variance
    degrees = prior + seeds - 1
    variance = (prior * pooled + (seeds - 1) * own) / degrees
    error = np.maximum(np.sqrt(variance / seeds), np.finfo(float).tiny)
    found: Floats = stdtr(degrees, -behind.mean(axis=1) / error)
    return found


def next_step(trials: Sequence[Standing], terms: Terms, compare: Compare = chances) -> Step:
    """The next thing to do for a process that is free.

    The cost stays within the study's budget, except that one trial is always trained to the end.
    """
    first, full = terms.budgets[0], terms.budgets[-1]
    rungs = [len(each.samples) + each.busy for each in trials]  # reached, or on their way there
    may_spend = terms.trials * (terms.budget * full - first)  # beyond the first rung
    left = may_spend - sum(terms.budgets[rung - 1] - first for rung in rungs if rung)
    unstarted = len(trials) < terms.trials
    waiting = [
        each
        for rung in reversed(range(len(terms.budgets) - 1))
        for each in _waiting(rung, trials, compare)
    ]
    kept = EARLY * may_spend * unstarted
    for each in waiting:
        cost = terms.budgets[each.rung + 1] - terms.budgets[each.rung]
        if each.place < each.reached // terms.reduction and cost <= left - kept:
            return Step(What.promote, each.number)
    for each in waiting:
        if each.place >= each.reached - each.reached // WORST and each.chance < terms.risk:
            return Step(What.prune, each.number)
    if unstarted:
        return Step(What.start)
    for each in sorted(waiting, key=lambda each: (-each.chance, each.place)):
        if full - terms.budgets[each.rung] <= left or max(rungs) <= each.rung + 1:
            return Step(What.promote, each.number)
    if waiting:
        return Step(What.prune, waiting[-1].number)
    return Step(What.wait if any(each.busy for each in trials) else What.finish)


def _waiting(rung: int, trials: Sequence[Standing], compare: Compare) -> list[_Waiting]:
    """The trials that wait at a rung, the best one first."""
    reached = [each for each in trials if len(each.samples) > rung]
    waits = [len(each.samples) == rung + 1 and not (each.busy or each.ended) for each in reached]
    if not any(waits):
        return []
    samples = np.stack([each.samples[rung] for each in reached])
    chance = compare(samples)
    order = np.argsort(-samples.mean(axis=(1, 2)), kind="stable")
    return [
        _Waiting(reached[i].number, rung, place, len(reached), chance[i])
        for place, i in enumerate(order)
        if waits[i]
    ]
