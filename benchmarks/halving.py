"""How often pruning discards the best trial, in simulated studies with known scores.

    python -m benchmarks.halving [--studies 400]

A study has 30 random trials x 3 seeds and two workers. A trial's curve rises from a floor to its
asymptote and is logistic in the logarithm of the steps; 30 % of the trials never leave the floor.
The correlation between an early rise and a high asymptote depends on `crossing`: 0.9 (low), 0.6
(mid) or 0.2 (high: many of the best trials start slowly). Random shifts that grow with `noise`
(0.5, 1 or 2) are added per seed (the same for all trials), per run and per evaluation. In half of
the trials, some seeds never learn. In `narrow` studies, all trials are similar, as near tuned
values.

All contenders get the same curves. Scores are fractions of the range of returns:

- `pruned_best`: fraction of studies that did not train the trial with the highest expected score to
  the full budget; `pruned_near_best`: fraction that trained no trial within 0.02 of it to the end
- `better_pruned`: fraction in which a pruned trial is better than the chosen one by more than 0.02
- `regret`: expected score of the trial that the full grid chooses on the same curves, minus that
  of the chosen trial
- `cost`, `max_cost`: mean and largest number of steps, as a fraction of the full grid of 30 x 3
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
    Action,
    Decision,
    Standing,
    next_step,
    prob_better_than_best,
    rung_budgets,
    select_evaluations,
)

TRIALS, SEEDS, EVALUATIONS, WORKERS = 30, 3, 45, 2
NOISE = {"low": 0.5, "mid": 1.0, "high": 2.0}
CROSSING = {
    "low": 0.9,
    "mid": 0.6,
    "high": 0.2,
}  # correlation of an early rise and a high asymptote
MARGIN = 0.02
LAST_EVALS = 5

Floats: TypeAlias = NDArray[np.float64]
Compare: TypeAlias = Callable[[Floats], Floats]  # the signature of `halving.prob_better_than_best`
Decide: TypeAlias = Callable[[Sequence[Standing], "Terms"], Decision]


@dataclass(frozen=True)
class Terms:
    """The parameters of the study and of the rule."""

    budgets: Sequence[int]
    trials: int
    reduction: int = 3
    risk: float = 0.1
    max_cost: float = 0.5


@dataclass(frozen=True)
class Landscape:
    """The expected scores and the curves of all trials of a study."""

    expected: Floats  # [N] expected scores at the full budget
    curves: Floats  # [N, S, E] evaluations

    @classmethod
    def drawn(
        cls, rng: np.random.Generator, noise: float, crossing: float, *, narrow: bool = False
    ) -> Landscape:
        """Draws random trials or, if `narrow`, trials that are all nearly equally good."""
        height, start = rng.normal(size=(2, TRIALS))
        spread = 0.4 if narrow else 1.2
        asymptote = 1 / (1 + np.exp(-spread * height - 1.2 * narrow))
        asymptote[rng.random(TRIALS) < 0.3 * (not narrow)] = 0
        early = crossing * height + np.sqrt(1 - crossing**2) * start
        log_half = np.log(0.2) - (0.4 if narrow else 0.7) * early
        failing = np.where(rng.random(TRIALS) < 0.5, 0, rng.beta(1, 6, TRIALS)) * min(noise, 1.5)

        def runs(seeds: int, fraction: Floats) -> Floats:
            """Returns the curves without evaluation noise at these fractions of the budget."""
            seed, run = rng.normal(size=(2, 1, seeds)), rng.normal(size=(2, TRIALS, seeds))
            half = log_half[:, None] + noise * (0.15 * seed[0] + 0.2 * run[0])
            high = asymptote[:, None] * (1 + noise * (0.05 * seed[1] + 0.08 * run[1]))
            high *= rng.random((TRIALS, seeds)) >= failing[:, None]
            return np.asarray(
                high[..., None] / (1 + np.exp(4 * (half[..., None] - np.log(fraction))))
            )

        fraction = np.arange(1, EVALUATIONS + 1) / EVALUATIONS
        expected = runs(200, fraction[-LAST_EVALS:]).mean(axis=(1, 2))
        curves = runs(SEEDS, fraction)
        return cls(expected, curves * (1 + 0.1 * noise * rng.normal(size=curves.shape)))


def chance_by_bootstrap(samples: Floats) -> Floats:
    """P(better than the best trial), from all resamples of the seeds' paired differences.  [N]"""
    means = samples.mean(axis=2)
    behind = means[means.mean(axis=1).argmax()] - means  # [N, S]
    seeds = behind.shape[1]
    drawn = behind[:, list(product(range(seeds), repeat=seeds))].sum(axis=2)  # [N, S^S]
    return np.asarray((drawn < 0).mean(axis=1) + (drawn == 0).mean(axis=1) / 2)


def chance_by_evaluations(samples: Floats) -> Floats:
    """P(better than the best trial), from resamples of seeds and of their evaluations.  [N]"""
    behind = samples[samples.mean(axis=(1, 2)).argmax()] - samples
    _, seeds, evaluations = behind.shape
    rng = np.random.default_rng(0)
    seed = rng.integers(seeds, size=(200, seeds, 1))
    evaluation = rng.integers(evaluations, size=(200, seeds, evaluations))
    drawn = behind[:, seed, evaluation].sum(axis=(2, 3))  # [N, 200]
    return np.asarray((drawn < 0).mean(axis=1) + (drawn == 0).mean(axis=1) / 2)


def chance_by_residuals(samples: Floats) -> Floats:
    """P(better than the best trial), from resampled residuals of all trials' differences.  [N]"""
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
    """Returns the samples [N, S, K] of trials that reached a rung, and the trials waiting there."""
    reached = [trial for trial in trials if len(trial.samples) > rung]
    waiting = {
        index: trial
        for index, trial in enumerate(reached)
        if len(trial.samples) == rung + 1 and not trial.busy and not trial.ended
    }
    return np.array([trial.samples[rung] for trial in reached]), waiting


def count_better(samples: Floats, index: int) -> int:
    """Returns how many trials of a rung are better than trial `index`."""
    scores = samples.mean(axis=(1, 2))
    return int((scores > scores[index]).sum())


def ours(trials: Sequence[Standing], terms: Any) -> Decision:
    """The rule of border-tune."""
    return next_step(trials, terms, terms)


def ours_by(compare: Compare, trials: Sequence[Standing], terms: Terms) -> Decision:
    """Our rule with another comparison."""
    with patch.object(halving, "prob_better_than_best", compare):
        return ours(trials, terms)


def significant(compare: Compare, trials: Sequence[Standing], terms: Terms) -> Decision:
    """Our rule, but it also prunes trials that are significantly worse than the best of a rung."""
    for rung in range(len(terms.budgets) - 1):
        samples, waiting = reached_by(trials, rung)
        chance = compare(samples) if waiting else ()
        for index, trial in waiting.items():
            if chance[index] < terms.risk:
                return Decision(Action.prune, trial.number)
    return ours_by(compare, trials, terms)


def asha(trials: Sequence[Standing], terms: Terms) -> Decision:
    """Li et al. 2020, Algorithm 2, with a fixed number of trials; the rest stay at their rung."""
    for rung in reversed(range(len(terms.budgets) - 1)):
        samples, waiting = reached_by(trials, rung)
        for index, trial in waiting.items():
            if count_better(samples, index) < len(samples) // terms.reduction:
                return Decision(Action.promote, trial.number)
    return Decision(Action.start if len(trials) < terms.trials else Action.finish)


def optuna_halving(trials: Sequence[Standing], terms: Terms) -> Decision:
    """Optuna's SuccessiveHalvingPruner: promotes or prunes a trial as soon as it reaches a rung."""
    for rung in range(len(terms.budgets) - 1):
        samples, waiting = reached_by(trials, rung)
        for index, trial in waiting.items():
            promoted = count_better(samples, index) < max(1, len(samples) // terms.reduction)
            return Decision(Action.promote if promoted else Action.prune, trial.number)
    return Decision(Action.start if len(trials) < terms.trials else Action.finish)


def optuna_median(trials: Sequence[Standing], terms: Terms) -> Decision:
    """Optuna's MedianPruner, called at every evaluation; here, every evaluation is a rung.

    Once five trials are complete, a trial is pruned if its best evaluation so far is worse than the
    median of the complete trials at the same step.
    """
    complete = [trial for trial in trials if len(trial.samples) == len(terms.budgets)]
    for trial in trials:
        if trial.busy or trial.ended:
            continue
        rung = len(trial.samples) - 1
        if len(complete) >= 5:
            median = np.median([other.samples[rung].mean() for other in complete])
            if max(sample.mean() for sample in trial.samples) < median:
                return Decision(Action.prune, trial.number)
        return Decision(Action.promote, trial.number)
    return Decision(Action.start if len(trials) < terms.trials else Action.finish)


def grid(trials: Sequence[Standing], terms: Terms) -> Decision:
    """No pruning."""
    return Decision(Action.start if len(trials) < terms.trials else Action.finish)


@dataclass(frozen=True)
class Contender:
    """A rule and its inputs."""

    decide: Decide
    terms: Terms
    seeds: int = SEEDS
    last_evals: int = LAST_EVALS


def simulate(land: Landscape, contender: Contender, seed: int) -> tuple[list[Standing], int]:
    """Simulates a study; returns its final trials and its cost in evaluations.

    Two workers; the time per step varies by 20 % between trials.
    """
    seconds = np.random.default_rng(seed).lognormal(0, 0.2, TRIALS)
    terms, budgets = contender.terms, contender.terms.budgets
    trials: list[Standing] = []
    arrivals: list[tuple[float, int]] = []
    now, cost = 0.0, 0

    while True:
        while len(arrivals) < WORKERS:
            step = contender.decide(trials, terms)
            what, number = step.action, step.number
            if what is Action.start:
                number = len(trials)
                trials.append(Standing(number))
            elif what in (Action.wait, Action.finish):
                break
            assert number is not None
            if what is Action.prune:
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
        trials[number] = reach_next_rung(trials[number], land, contender)


def reach_next_rung(trial: Standing, land: Landscape, contender: Contender) -> Standing:
    """Returns the trial after it has reached its next rung."""
    steps = contender.terms.budgets[len(trial.samples)]
    seen = land.curves[trial.number, : contender.seeds, :steps]
    sample = np.array(
        [select_evaluations(curve, Score.last, contender.last_evals) for curve in seen.tolist()]
    )
    samples = (*trial.samples, sample)
    ended = len(samples) == len(contender.terms.budgets)
    return Standing(trial.number, samples, ended=ended)


def judged(land: Landscape, contender: Contender, seed: int) -> dict[str, float]:
    """Simulates one study and computes its results."""
    trials, cost = simulate(land, contender, seed)
    complete = [trial for trial in trials if len(trial.samples) == len(contender.terms.budgets)]
    trained = [trial.number for trial in complete]
    chosen = max(complete, key=lambda trial: float(trial.samples[-1].mean())).number
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
    """Returns our default terms, with these values replaced."""
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
        "significant_t": Contender(partial(significant, prob_better_than_best), usual),
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
    """Measures all contenders on the same studies."""
    results_by_name: dict[str, list[dict[str, float]]] = {name: [] for name in contenders()}
    for study in range(studies):
        rng = np.random.default_rng([study, *NOISE[noise].as_integer_ratio(), narrow])
        land = Landscape.drawn(rng, NOISE[noise], CROSSING[crossing], narrow=narrow)
        for name, contender in contenders().items():
            results_by_name[name].append(judged(land, contender, study))
    return {name: average(results) for name, results in results_by_name.items()}


def average(studies: Sequence[dict[str, float]]) -> dict[str, float]:
    """Averages over studies, rounded to three decimals."""
    means = {name: fmean(study[name] for study in studies) for name in studies[0]}
    means["max_cost"] = max(study["cost"] for study in studies)
    return {name: round(value, 3) for name, value in means.items()}


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--studies", type=int, default=400, help="studies per row (default: 400)")
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
