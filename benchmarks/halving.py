"""How often pruning loses the best trial: made-up studies with known scores, no training.

    python -m benchmarks.halving [--studies 400]

A study is 30 trials x 3 seeds, drawn at random, on two workers. A trial's curve rises from a floor
to its asymptote, which 30 % of the trials never leave; it is logistic in the logarithm of the
steps. How early it rises agrees with the asymptote by the correlation `crossing`: 0.9 (low), 0.6
(mid), 0.2 (high, where many of the best trials start slowly). A seed shifts all trials alike, each
run by itself, and each evaluation; all three shifts grow with `noise`: 0.5, 1 or 2. Half of the
trials have seeds that never learn. In `narrow` all trials are alike, as near tuned values.

Every contender sees the same curves. Scores are shares of the range of returns:

- `pruned_best`: share of studies in which the trial with the highest expected score at the full
  budget was not trained that far; `pruned_near_best`: nor any trial within 0.02 of it
- `better_pruned`: share in which a pruned trial is better than the chosen one by more than 0.02
- `regret`: expected score of the trial that the full grid chooses on the same curves, minus that
  of the chosen one
- `cost`, `max_cost`: steps taken, as a share of the full grid of 30 x 3
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from statistics import fmean
from typing import Any, TypeAlias
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray

from benchmarks.table import emit, make_parser, say
from border_cli.tune import halving
from border_cli.tune.config import Score
from border_cli.tune.halving import (
    Decision,
    Standing,
    What,
    chances,
    counted,
    next_step,
    rung_budgets,
)

TRIALS, SEEDS, EVALUATIONS, WORKERS = 30, 3, 45, 2
NOISE = {"low": 0.5, "mid": 1.0, "high": 2.0}
CROSSING = {"low": 0.9, "mid": 0.6, "high": 0.2}  # correlation of early and high
MARGIN = 0.02
LAST_EVALS = 5

Floats: TypeAlias = NDArray[np.float64]
Compare: TypeAlias = Callable[[Floats], Floats]  # what `halving.chances` does
Decide: TypeAlias = Callable[[Sequence[Standing], "Terms"], Decision]


@dataclass(frozen=True)
class Terms:
    """The study and the settings that a rule is given."""

    budgets: Sequence[int]
    trials: int
    reduction: int = 3
    risk: float = 0.1
    max_cost: float = 0.5


@dataclass(frozen=True)
class Landscape:
    """What a study would find."""

    expected: Floats  # [N] score at the full budget over all seeds
    curves: Floats  # [N, S, E] evaluations

    @classmethod
    def drawn(
        cls, rng: np.random.Generator, noise: float, crossing: float, *, narrow: bool = False
    ) -> Landscape:
        """Of trials chosen at random, or of trials that are all nearly as good."""
        height, start = rng.normal(size=(2, TRIALS))
        spread = 0.4 if narrow else 1.2
        asymptote = 1 / (1 + np.exp(-spread * height - 1.2 * narrow))
        asymptote[rng.random(TRIALS) < 0.3 * (not narrow)] = 0
        early = crossing * height + np.sqrt(1 - crossing**2) * start
        log_half = np.log(0.2) - (0.4 if narrow else 0.7) * early
        failing = np.where(rng.random(TRIALS) < 0.5, 0, rng.beta(1, 6, TRIALS)) * min(noise, 1.5)

        def runs(seeds: int, share: Floats) -> Floats:
            """Curves without the noise of evaluations at these shares of the budget."""
            seed, run = rng.normal(size=(2, 1, seeds)), rng.normal(size=(2, TRIALS, seeds))
            half = log_half[:, None] + noise * (0.15 * seed[0] + 0.2 * run[0])
            high = asymptote[:, None] * (1 + noise * (0.05 * seed[1] + 0.08 * run[1]))
            high *= rng.random((TRIALS, seeds)) >= failing[:, None]
            return np.asarray(high[..., None] / (1 + np.exp(4 * (half[..., None] - np.log(share)))))

        share = np.arange(1, EVALUATIONS + 1) / EVALUATIONS
        expected = runs(200, share[-LAST_EVALS:]).mean(axis=(1, 2))
        curves = runs(SEEDS, share)
        return cls(expected, curves * (1 + 0.1 * noise * rng.normal(size=curves.shape)))


def chance_by_bootstrap(samples: Floats) -> Floats:
    """P(better than the best one) by all resamples of the seeds' paired differences.  [N]"""
    means = samples.mean(axis=2)
    behind = means[means.mean(axis=1).argmax()] - means  # [N, S]
    seeds = behind.shape[1]
    drawn = behind[:, list(product(range(seeds), repeat=seeds))].sum(axis=2)  # [N, S^S]
    return np.asarray((drawn < 0).mean(axis=1) + (drawn == 0).mean(axis=1) / 2)


def chance_by_evaluations(samples: Floats) -> Floats:
    """P(better than the best one) by resamples of seeds and, within each, of evaluations.  [N]"""
    behind = samples[samples.mean(axis=(1, 2)).argmax()] - samples
    _, seeds, evaluations = behind.shape
    rng = np.random.default_rng(0)
    seed = rng.integers(seeds, size=(200, seeds, 1))
    evaluation = rng.integers(evaluations, size=(200, seeds, evaluations))
    drawn = behind[:, seed, evaluation].sum(axis=(2, 3))  # [N, 200]
    return np.asarray((drawn < 0).mean(axis=1) + (drawn == 0).mean(axis=1) / 2)


def chance_by_residuals(samples: Floats) -> Floats:
    """P(better than the best one) by adding resampled residuals of all trials' differences.  [N]"""
    means = samples.mean(axis=2)
    trials, seeds = means.shape
    if trials == 1:
        return np.full(1, 0.5)
    best = means.mean(axis=1).argmax()
    behind = means[best] - means  # [N, S]
    residuals = np.delete(behind - behind.mean(axis=1, keepdims=True), best, axis=0).ravel()
    residuals *= np.sqrt(seeds / (seeds - 1))
    drawn = np.random.default_rng(0).choice(residuals, size=(1000, seeds)).mean(axis=1)
    chance = (behind.mean(axis=1)[:, None] + drawn < 0).mean(axis=1)
    return np.asarray(np.where(np.arange(trials) == best, 0.5, chance))


def reached_by(trials: Sequence[Standing], rung: int) -> tuple[Floats, dict[int, Standing]]:
    """The samples of all that have reached a rung, [N, S, K], and which of them wait there."""
    reached = [each for each in trials if len(each.samples) > rung]
    waiting = {
        index: each
        for index, each in enumerate(reached)
        if len(each.samples) == rung + 1 and not each.busy and not each.ended
    }
    return np.array([each.samples[rung] for each in reached]), waiting


def better(samples: Floats, index: int) -> int:
    """How many of a rung are better than this one."""
    scores = samples.mean(axis=(1, 2))
    return int((scores > scores[index]).sum())


def ours(trials: Sequence[Standing], terms: Any) -> Decision:
    """The rule of border-tune."""
    return next_step(trials, terms, terms)


def ours_by(compare: Compare, trials: Sequence[Standing], terms: Terms) -> Decision:
    """As ours, by another comparison."""
    with patch.object(halving, "chances", compare):
        return ours(trials, terms)


def significant(compare: Compare, trials: Sequence[Standing], terms: Terms) -> Decision:
    """As ours, but whoever is significantly worse than the best of its rung is pruned."""
    for rung in range(len(terms.budgets) - 1):
        samples, waiting = reached_by(trials, rung)
        chance = compare(samples) if waiting else ()
        for index, each in waiting.items():
            if chance[index] < terms.risk:
                return Decision(What.prune, each.number)
    return ours_by(compare, trials, terms)


def asha(trials: Sequence[Standing], terms: Terms) -> Decision:
    """Li et al. 2020, Algorithm 2, with a given number of trials: the rest stays where it is."""
    for rung in reversed(range(len(terms.budgets) - 1)):
        samples, waiting = reached_by(trials, rung)
        for index, each in waiting.items():
            if better(samples, index) < len(samples) // terms.reduction:
                return Decision(What.promote, each.number)
    return Decision(What.start if len(trials) < terms.trials else What.finish)


def optuna_halving(trials: Sequence[Standing], terms: Terms) -> Decision:
    """Optuna's SuccessiveHalvingPruner: at its rung a trial goes on at once, or is pruned."""
    for rung in range(len(terms.budgets) - 1):
        samples, waiting = reached_by(trials, rung)
        for index, each in waiting.items():
            goes_on = better(samples, index) < max(1, len(samples) // terms.reduction)
            return Decision(What.promote if goes_on else What.prune, each.number)
    return Decision(What.start if len(trials) < terms.trials else What.finish)


def optuna_median(trials: Sequence[Standing], terms: Terms) -> Decision:
    """Optuna's MedianPruner, asked at each evaluation, which is a rung here.

    From the fifth complete trial on, a trial is pruned if its best evaluation so far is worse than
    the median of the complete ones at this step.
    """
    complete = [each for each in trials if len(each.samples) == len(terms.budgets)]
    for each in trials:
        if each.busy or each.ended:
            continue
        rung = len(each.samples) - 1
        if len(complete) >= 5:
            median = np.median([other.samples[rung].mean() for other in complete])
            if max(sample.mean() for sample in each.samples) < median:
                return Decision(What.prune, each.number)
        return Decision(What.promote, each.number)
    return Decision(What.start if len(trials) < terms.trials else What.finish)


def grid(trials: Sequence[Standing], terms: Terms) -> Decision:
    """No pruning."""
    return Decision(What.start if len(trials) < terms.trials else What.finish)


@dataclass(frozen=True)
class Contender:
    """A rule, and what it is given."""

    decide: Decide
    terms: Terms
    seeds: int = SEEDS
    last_evals: int = LAST_EVALS


def simulate(land: Landscape, contender: Contender, seed: int) -> tuple[list[Standing], int]:
    """How a study ends, and what it took in evaluations.

    Two workers; what a trial takes per step varies by 20 %.
    """
    seconds = np.random.default_rng(seed).lognormal(0, 0.2, TRIALS)
    terms, budgets = contender.terms, contender.terms.budgets
    trials: list[Standing] = []
    arrivals: list[tuple[float, int]] = []
    now, cost = 0.0, 0

    while True:
        while len(arrivals) < WORKERS:
            step = contender.decide(trials, terms)
            what, number = step.what, step.number
            if what is What.start:
                number = len(trials)
                trials.append(Standing(number))
            elif what in (What.wait, What.finish):
                break
            assert number is not None
            if what is What.prune:
                trials[number] = trials[number]._replace(ended=True)
                continue
            rung = len(trials[number].samples)
            steps = budgets[rung] - (budgets[rung - 1] if rung else 0)
            trials[number] = trials[number]._replace(busy=True)
            heapq.heappush(arrivals, (now + steps * seconds[number], number))
            cost += steps * contender.seeds
        if not arrivals:
            return trials, cost
        now, number = heapq.heappop(arrivals)
        trials[number] = arrived(trials[number], land, contender)


def arrived(trial: Standing, land: Landscape, contender: Contender) -> Standing:
    """The trial at its next rung."""
    steps = contender.terms.budgets[len(trial.samples)]
    seen = land.curves[trial.number, : contender.seeds, :steps]
    sample = np.array([counted(curve, Score.last, contender.last_evals) for curve in seen.tolist()])
    samples = (*trial.samples, sample)
    ended = len(samples) == len(contender.terms.budgets)
    return Standing(trial.number, samples, ended=ended)


def judged(land: Landscape, contender: Contender, seed: int) -> dict[str, float]:
    """One study."""
    trials, cost = simulate(land, contender, seed)
    complete = [each for each in trials if len(each.samples) == len(contender.terms.budgets)]
    trained = [each.number for each in complete]
    chosen = max(complete, key=lambda each: float(each.samples[-1].mean())).number
    of_grid = int(land.curves[..., -LAST_EVALS:].mean(axis=(1, 2)).argmax())
    best = int(land.expected.argmax())
    pruned = np.delete(land.expected, trained)
    return {
        "pruned_best": best not in trained,
        "pruned_near_best": land.expected[trained].max() < land.expected[best] - MARGIN,
        "better_pruned": pruned.max(initial=0) > land.expected[chosen] + MARGIN,
        "regret": float(land.expected[of_grid] - land.expected[chosen]),
        "cost": cost / (TRIALS * SEEDS * EVALUATIONS),
    }


def terms_of(*, rungs: int = 3, reduction: int = 3, max_cost: float = 0.5) -> Terms:
    """Our defaults, but for what is given."""
    budgets = rung_budgets(EVALUATIONS, rungs=rungs, reduction=reduction, interval=1)
    return Terms(budgets, TRIALS, reduction, max_cost=max_cost)


def contenders() -> dict[str, Contender]:
    usual, halves = terms_of(), terms_of(reduction=2)
    each_evaluation = replace(usual, budgets=tuple(range(1, EVALUATIONS + 1)))
    return {
        "ours": Contender(ours, usual),
        "ours_bootstrap": Contender(partial(ours_by, chance_by_bootstrap), usual),
        "ours_rungs_2": Contender(ours, terms_of(rungs=2)),
        "ours_rungs_4": Contender(ours, terms_of(rungs=4)),
        "ours_reduction_2": Contender(ours, halves),
        "ours_cost_0.4": Contender(ours, terms_of(max_cost=0.4)),
        "significant_t": Contender(partial(significant, chances), usual),
        "significant_bootstrap": Contender(partial(significant, chance_by_bootstrap), usual),
        "significant_evaluations": Contender(partial(significant, chance_by_evaluations), usual),
        "significant_residuals": Contender(partial(significant, chance_by_residuals), usual),
        "asha": Contender(asha, usual),
        "optuna_halving": Contender(optuna_halving, usual),
        "optuna_halving_one_seed": Contender(optuna_halving, usual, seeds=1),
        "optuna_median": Contender(optuna_median, each_evaluation, last_evals=1),
        "no_pruning": Contender(grid, replace(usual, budgets=(EVALUATIONS,))),
    }


def measure(studies: int, noise: str, crossing: str, *, narrow: bool) -> dict[str, Any]:
    """All contenders on the same studies."""
    found: dict[str, list[dict[str, float]]] = {name: [] for name in contenders()}
    for study in range(studies):
        rng = np.random.default_rng([study, *NOISE[noise].as_integer_ratio(), narrow])
        land = Landscape.drawn(rng, NOISE[noise], CROSSING[crossing], narrow=narrow)
        for name, contender in contenders().items():
            found[name].append(judged(land, contender, study))
    return {name: averaged(each) for name, each in found.items()}


def averaged(studies: Sequence[dict[str, float]]) -> dict[str, float]:
    """Over studies, to three digits after the point."""
    means = {name: fmean(each[name] for each in studies) for name in studies[0]}
    means["max_cost"] = max(each["cost"] for each in studies)
    return {name: round(value, 3) for name, value in means.items()}


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--studies", type=int, default=400, help="per setting (default: 400)")
    studies = parser.parse_args().studies
    settings = [(noise, crossing, False) for crossing in CROSSING for noise in NOISE]
    settings += [(noise, "mid", True) for noise in NOISE]
    for noise, crossing, narrow in settings:
        row = f"noise_{noise}_" + ("narrow" if narrow else f"crossing_{crossing}")
        say(row)
        line = measure(studies, noise, crossing, narrow=narrow)
        emit("halving", row, {"studies": studies, **line})


if __name__ == "__main__":
    main()
