"""Which trial of a study is trained next, and which one ends.

Li et al. 2020, "A System for Massively Parallel Hyperparameter Tuning", Algorithm 2 (ASHA): a trial
is trained to the first of several budgets, the rungs, and waits there; the top 1/`reduction` of a
rung are promoted. Here a promoted trial resumes from its checkpoints, and both ends of a rung are
treated alike: of its worst third, trials are pruned early if they are significantly worse than the
best one. What lies between waits until all trials have started, and is then promoted, the most
promising first, as far as the study's budget reaches. Slow starters live on that, and half of the
budget is kept for it (docs/benchmarks.md).

The comparison is the moderated t of Smyth 2004, "Linear models and empirical Bayes methods for
assessing differential expression in microarray experiments": few seeds say little about the
variance of one difference, so it is drawn towards the mean of all at the rung. The prior degrees of
freedom are fixed, not estimated.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from border_cli.errors import ConfigError
from border_cli.tune.config import Score, TuneConfig
from border_cli.tune.trials import Study

PRIOR_DEGREES = 4  # at most: weight of the pooled variance, in degrees of freedom
WORST = 3  # one in three at a rung, the worst, may be pruned before all have started
EARLY = 1 / 2  # of what may be spent beyond the first rung, before all have started

Floats: TypeAlias = NDArray[np.float64]


class What(StrEnum):
    """What a free process does next."""

    start = "start"  # a new trial
    promote = "promote"  # a trial, to its next rung
    prune = "pruned"  # a trial ends where it is; then ask again
    complete = "complete"  # a trial ends at the last rung; then ask again
    wait = "wait"  # until another process has finished
    finish = "finish"  # every trial has ended


@dataclass(frozen=True, slots=True)
class Decision:
    """A decision, and the trial that it is about."""

    what: What
    number: int | None = None
    reason: str = field(default="", compare=False)  # why a trial is pruned


class Standing(NamedTuple):
    """A trial as far as it is."""

    number: int
    samples: Sequence[Floats] = ()  # per rung reached: [S, K], K evaluations that count
    busy: bool = False  # on its way to rung len(samples)
    ended: bool = False  # complete, pruned or failed


def rung_budgets(full: int, *, rungs: int, reduction: int, interval: int) -> tuple[int, ...]:
    """full / reduction^k steps for each rung, rounded up to evaluations; the last is `full`."""
    evaluations = [math.ceil(full / reduction**k / interval) for k in reversed(range(rungs))]
    if len(set(evaluations)) < rungs:
        raise ConfigError(
            f"rungs={rungs} with reduction={reduction}: {evaluations[-1]} evaluations are too few; "
            "choose fewer rungs or a smaller trainer.eval_interval"
        )
    return tuple(min(full, interval * each) for each in evaluations)


def counted(curve: Sequence[float], score: Score, last_evals: int) -> list[float]:
    """The evaluations of one run so far that count; of few, `last` takes the later half."""
    last = curve[len(curve) // 2 :][-last_evals:]
    return list({Score.last: last, Score.best: [max(curve)], Score.auc: curve}[score])


def chances(samples: Floats) -> Floats:
    """P(a trial is better than the best one at its rung), 0.5 for that one.  [N, S, K] -> [N]

    Trials have the same seeds and are evaluated at the same steps, so differences are paired. One
    seed has no variance: no trial is significantly worse then.
    """
    from scipy.special import stdtr

    means = samples.mean(axis=2)
    trials, seeds = means.shape
    if min(trials, seeds) == 1:
        return np.full(trials, 0.5)
    behind = means[means.mean(axis=1).argmax()] - means
    own, degrees = behind.var(axis=1, ddof=1), seeds - 1
    pooled = own.sum() / (trials - 1)  # the best one does not differ from itself
    prior = min(PRIOR_DEGREES, (trials - 2) * degrees)  # what others know of the variance
    variance = (prior * pooled + degrees * own) / (prior + degrees)
    error = np.sqrt(variance / seeds + 1e-300)  # the best one's may be 0
    found: Floats = stdtr(prior + degrees, -behind.mean(axis=1) / error)
    return found


def next_step(trials: Sequence[Standing], study: Study, config: TuneConfig) -> Decision:
    """The next thing to do for a process that is free.

    The cost stays within the study's budget, except that one trial is always trained to the end. A
    trial that stands nowhere was added just now, or by a command that is gone.

    A promotion leaves enough for the best trial to be trained to the end. While a trial has not
    come to the first rung, that one may be the best.
    """
    budgets, rungs = study.budgets, len(study.budgets)
    for each in trials:
        if len(each.samples) == rungs and not each.ended:
            return Decision(What.complete, each.number)
        if not (each.samples or each.busy or each.ended):
            return Decision(What.promote, each.number)
    first, full = budgets[0], budgets[-1]
    reached = [len(each.samples) + each.busy for each in trials]  # or on their way there
    may_spend = study.trials * (config.max_cost * full - first)  # beyond the first rung
    left = may_spend - sum(budgets[rung - 1] - first for rung in reached if rung)
    unstarted = len(trials) < study.trials
    kept = EARLY * may_spend * unstarted
    late = unstarted or any(each.busy and not each.samples for each in trials)
    best = best_of(trials, rungs)
    to_keep = full - first if late else 0
    if best is not None and not (late or best.ended):
        to_keep = full - budgets[len(best.samples) + best.busy - 1]

    def leaves_enough(number: int, rung: int) -> bool:
        is_best = best is not None and number == best.number and not late
        return is_best or left - (budgets[rung + 1] - budgets[rung]) >= to_keep

    waiting = list(_waiting(trials, rungs - 1))
    for chance, worse, others, rung, number in reversed(waiting):
        if worse < others // WORST and chance < config.risk:
            return Decision(What.prune, number, "significantly worse than the best at its budget")
        too_dear = full - budgets[rung] > left and max(reached) > rung + 1
        if too_dear and not late:
            return Decision(What.prune, number, "max_cost leaves too little to train it to the end")
        early = others - worse <= others // config.reduction and left > kept
        if early and leaves_enough(number, rung):
            return Decision(What.promote, number)
    if unstarted:
        return Decision(What.start)
    for *_, rung, number in sorted(waiting, reverse=True):  # the most promising one first
        if leaves_enough(number, rung):
            return Decision(What.promote, number)
    return Decision(What.wait if any(each.busy for each in trials) else What.finish)


def best_of(trials: Sequence[Standing], rungs: int) -> Standing | None:
    """The best trial so far: the best one at the first rung or, where that was trained further, the
    best one at the next rung, and so on. Pruned and failed trials do not count."""
    best = None
    for rung in range(rungs):
        there = {
            float(each.samples[rung].mean()): each
            for each in trials
            if len(each.samples) > rung and (not each.ended or len(each.samples) == rungs)
        }
        if not there or (best is not None and len(best.samples) <= rung):
            return best
        best = there[max(there)]
    return best


def _waiting(trials: Sequence[Standing], rungs: int) -> Iterator[tuple[float, int, int, int, int]]:
    """Chance, how many at its rung are worse, how many there are, rung and number of each trial
    that waits; the highest rung and its best trial come last."""
    for rung in range(rungs):
        reached = [each for each in trials if len(each.samples) > rung]
        reached.sort(key=lambda each: float(each.samples[rung].mean()))
        if reached:
            found = chances(np.array([each.samples[rung] for each in reached]))
        for worse, each in enumerate(reached):
            if len(each.samples) == rung + 1 and not (each.busy or each.ended):
                yield found[worse], worse, len(reached), rung, each.number
