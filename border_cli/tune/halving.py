"""Asynchronous successive halving: decides which trial to train next and which one to prune.

Li et al. 2020, "A System for Massively Parallel Hyperparameter Tuning", Algorithm 2 (ASHA): a trial
is trained to the first of several budgets, the rungs, and waits there; the top 1/`reduction` of a
rung are promoted. Here a promoted trial resumes from its checkpoints. In addition, trials in the
worst third of a rung are pruned early if they are significantly worse than the best one. All other
trials wait until every trial has started. They are then promoted, the most promising first, while
the study's budget lasts. This helps trials that learn slowly at first, and half of the budget
beyond the first rung is reserved for it (docs/inside/benchmarks.md).

Trials are compared with the moderated t of Smyth 2004, "Linear models and empirical Bayes methods
for assessing differential expression in microarray experiments": the variance of a difference is
poorly estimated from few seeds, so it is shrunk towards the mean of all variances at the rung. The
prior degrees of freedom are fixed, not estimated.
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

PRIOR_DEGREES = 4  # maximum weight of the pooled variance, in degrees of freedom
WORST = 3  # only the worst 1/WORST of a rung may be pruned as significantly worse
LATE_FRACTION = 1 / 2  # fraction of the budget beyond the first rung, for late promotions

Floats: TypeAlias = NDArray[np.float64]


class Action(StrEnum):
    """The next action of a free process."""

    start = "start"  # start a new trial
    promote = "promote"  # train a trial to its next rung
    prune = "pruned"  # end a trial at its current rung, then decide again
    complete = "complete"  # end a trial at the last rung, then decide again
    wait = "wait"  # wait until another process has finished
    finish = "finish"  # nothing is left to do


@dataclass(frozen=True, slots=True)
class Decision:
    """The next action, and the trial that it applies to."""

    action: Action
    number: int | None = None
    reason: str = field(default="", compare=False)  # why a trial is pruned


class Standing(NamedTuple):
    """The progress of a trial."""

    number: int
    samples: Sequence[Floats] = ()  # [S, K] per rung reached: K evaluations of S seeds
    busy: bool = False  # being trained to rung len(samples)
    ended: bool = False  # complete, pruned or failed


def rung_budgets(full: int, *, rungs: int, reduction: int, interval: int) -> tuple[int, ...]:
    """Returns full / reduction^k steps per rung, rounded up to evaluations; the last is `full`."""
    evaluations = [math.ceil(full / reduction**k / interval) for k in reversed(range(rungs))]
    if len(set(evaluations)) < rungs:
        raise ConfigError(
            f"rungs={rungs} with reduction={reduction}: {evaluations[-1]} evaluations are too few; "
            "choose fewer rungs or a smaller trainer.eval_interval"
        )
    return tuple(min(full, interval * num) for num in evaluations)


def select_evaluations(curve: Sequence[float], score: Score, last_evals: int) -> list[float]:
    """Returns the evaluations of a run from which its score is computed. `last` returns at most the
    later half of the curve."""
    last = curve[len(curve) // 2 :][-last_evals:]
    return list({Score.last: last, Score.best: [max(curve)], Score.auc: curve}[score])


def prob_better_than_best(samples: Floats) -> Floats:
    """Returns P(a trial is better than the best one at its rung), 0.5 for the best itself.

    [N, S, K] -> [N]. Trials have the same seeds and are evaluated at the same steps, so differences
    are paired. A single seed has no variance, so no trial is significantly worse.
    """
    from scipy.special import stdtr

    means = samples.mean(axis=2)
    trials, seeds = means.shape
    if min(trials, seeds) == 1:
        return np.full(trials, 0.5)
    behind = means[means.mean(axis=1).argmax()] - means
    variances, degrees = behind.var(axis=1, ddof=1), seeds - 1
    pooled = variances.sum() / (trials - 1)  # without the best trial, whose differences are 0
    prior = min(PRIOR_DEGREES, (trials - 2) * degrees)  # degrees of freedom of the prior
    variance = (prior * pooled + degrees * variances) / (prior + degrees)
    error = np.sqrt(variance / seeds + 1e-300)  # the variance of the best trial may be 0
    probabilities: Floats = stdtr(prior + degrees, -behind.mean(axis=1) / error)
    return probabilities


def next_step(trials: Sequence[Standing], study: Study, config: TuneConfig) -> Decision:
    """Decides what a free process does next.

    The cost stays within the study's budget, except that one trial is always trained to the end. A
    promotion leaves enough of the budget to train the best trial to the end. The best trial is
    unknown until all trials have reached the first rung. A trial that has reached no rung and is
    not being trained was just added, or its command died.
    """
    budgets, rungs = study.budgets, len(study.budgets)
    for trial in trials:
        if len(trial.samples) == rungs and not trial.ended:
            return Decision(Action.complete, trial.number)
        if not (trial.samples or trial.busy or trial.ended):
            return Decision(Action.promote, trial.number)
    first, full = budgets[0], budgets[-1]
    reached = [len(trial.samples) + trial.busy for trial in trials]  # includes rungs in training
    spendable = study.trials * (config.max_cost * full - first)  # beyond the first rung
    left = spendable - sum(budgets[rung - 1] - first for rung in reached if rung)
    unstarted = len(trials) < study.trials
    reserved = LATE_FRACTION * spendable * unstarted
    best_unknown = unstarted or any(trial.busy and not trial.samples for trial in trials)
    best = best_of(trials, rungs)
    needed = full - first if best_unknown else 0
    if best is not None and not (best_unknown or best.ended):
        needed = full - budgets[len(best.samples) + best.busy - 1]

    def leaves_enough(number: int, rung: int) -> bool:
        is_best = best is not None and number == best.number and not best_unknown
        return is_best or left - (budgets[rung + 1] - budgets[rung]) >= needed

    waiting = list(_waiting(trials, rungs - 1))
    for probability, num_worse, num_at_rung, rung, number in reversed(waiting):
        if num_worse < num_at_rung // WORST and probability < config.risk:
            return Decision(Action.prune, number, "significantly worse than the best at its budget")
        too_expensive = full - budgets[rung] > left and max(reached) > rung + 1
        if too_expensive and not best_unknown:
            return Decision(
                Action.prune, number, "max_cost leaves too little to train it to the end"
            )
        promote_early = (
            num_at_rung - num_worse <= num_at_rung // config.reduction and left > reserved
        )
        if promote_early and leaves_enough(number, rung):
            return Decision(Action.promote, number)
    if unstarted:
        return Decision(Action.start)
    for *_, rung, number in sorted(waiting, reverse=True):  # the most promising trial first
        if leaves_enough(number, rung):
            return Decision(Action.promote, number)
    return Decision(Action.wait if any(trial.busy for trial in trials) else Action.finish)


def best_of(trials: Sequence[Standing], rungs: int) -> Standing | None:
    """Returns the best trial so far, ignoring pruned and failed ones. Starts with the best trial of
    the first rung, and moves to the next rung as long as the current best trial has reached it."""
    best = None
    for rung in range(rungs):
        by_mean = {
            float(trial.samples[rung].mean()): trial
            for trial in trials
            if len(trial.samples) > rung and (not trial.ended or len(trial.samples) == rungs)
        }
        if not by_mean or (best is not None and len(best.samples) <= rung):
            return best
        best = by_mean[max(by_mean)]
    return best


def _waiting(trials: Sequence[Standing], rungs: int) -> Iterator[tuple[float, int, int, int, int]]:
    """Yields the waiting trials, ordered by rung and mean: the probability of being better than the
    best, the number of worse trials and of all trials that have reached the rung (also ended ones),
    the rung, the trial's number."""
    for rung in range(rungs):
        reached = [trial for trial in trials if len(trial.samples) > rung]
        reached.sort(key=lambda trial: float(trial.samples[rung].mean()))
        if reached:
            probabilities = prob_better_than_best(
                np.array([trial.samples[rung] for trial in reached])
            )
        for num_worse, trial in enumerate(reached):
            if len(trial.samples) == rung + 1 and not (trial.busy or trial.ended):
                yield probabilities[num_worse], num_worse, len(reached), rung, trial.number
