"""Successive halving: single decisions, and simulated studies whose best trial is known."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import product

import numpy as np
import pytest
from numpy.testing import assert_allclose

from benchmarks.halving import (
    Contender,
    Decide,
    Landscape,
    Terms,
    chance_by_bootstrap,
    judged,
    ours,
    significant,
)
from border_cli.errors import ConfigError
from border_cli.tune.config import Score
from border_cli.tune.halving import (
    Action,
    Decision,
    Floats,
    Standing,
    prob_better_than_best,
    rung_budgets,
    select_evaluations,
)
from tests.support.case_sampling import ALL, sampled

TERMS = Terms(budgets=(100, 300, 900), trials=9, risk=0.05)
SEED_NOISE = np.array([-0.02, 0.0, 0.02])  # deviations of three seeds


def at(number: int, *scores: float, noise: float = 1.0, busy: bool = False) -> Standing:
    """A trial with these mean scores at its rungs; the sign of the noise alternates."""
    sign = 1 if number % 2 else -1
    samples = tuple((score + sign * noise * SEED_NOISE)[:, None] for score in scores)
    return Standing(number, samples, busy=busy)


def ended(trial: Standing) -> Standing:
    return trial._replace(ended=True)


def waiting(*scores: float) -> list[Standing]:
    """Trials that wait at the first rung."""
    return [at(number, score) for number, score in enumerate(scores)]


# Comparing trials.


def test_two_trials_have_students_t_of_their_seeds_differences() -> None:
    best = np.array([[3.0, 3.0], [4.0, 4.0], [5.0, 5.0]])
    other = np.array([[1.0, 3.0], [3.0, 1.0], [2.0, 2.0]])
    # The differences per seed are 1, 2 and 3: mean 2, variance 1, t = 2 / sqrt(1/3). With two
    # degrees of freedom, P(T > t) = (1 - t / sqrt(2 + t^2)) / 2.
    expected = (1 - np.sqrt(12 / 14)) / 2
    assert expected == pytest.approx(0.0371, abs=5e-5)
    assert_allclose(prob_better_than_best(np.stack([best, other])), [0.5, expected], rtol=1e-4)


def test_a_variance_is_drawn_towards_that_of_all_trials_at_the_rung() -> None:
    behind = np.array([[0.0, 0.0, 0.0], [1.0, 2.0, 3.0], [0.0, 0.0, 6.0]])
    # The variances 1 and 12 are averaged with the pooled variance 6.5, two degrees of freedom each:
    # (2 * 6.5 + 2 * 1) / 4 = 3.75, and 9.25. Both are 2 behind: t^2 = 12 / 3.75 and 12 / 9.25.
    # With four degrees, P(T > t) = (1 - sin(a) (1 + cos(a)^2 / 2)) / 2, where tan(a)^2 = t^2 / 4.
    cos2 = np.array([5 / 9, 37 / 49])
    tail = (1 - np.sqrt(1 - cos2) * (1 + cos2 / 2)) / 2
    assert_allclose(prob_better_than_best(10 - behind[:, :, None]), [0.5, *tail], rtol=1e-4)
    assert_allclose(tail, [0.0741, 0.1591], atol=1e-4)


def test_a_seed_that_is_hard_for_every_trial_changes_nothing() -> None:
    rng = np.random.default_rng(0)
    samples = rng.normal(size=(6, 3, 5))
    hard = np.array([0.0, -100.0, 30.0])[:, None]
    assert_allclose(
        prob_better_than_best(samples + hard), prob_better_than_best(samples), rtol=1e-6
    )


def test_the_order_of_trials_changes_nothing() -> None:
    rng = np.random.default_rng(1)
    samples, order = rng.normal(size=(8, 3, 5)), rng.permutation(8)
    assert_allclose(
        prob_better_than_best(samples[order]), prob_better_than_best(samples)[order], rtol=1e-6
    )


def test_three_bad_seeds_alone_are_no_proof() -> None:
    """In a quarter of all studies, one of two equal trials is worse with all three seeds."""
    pairs = np.random.default_rng(2).normal(size=(1000, 2, 3, 1))
    assert (
        np.mean([prob_better_than_best(pair).min() < 0.05 for pair in pairs]) < 0.12
    )  # 0.05 per trial
    assert np.mean([chance_by_bootstrap(pair).min() < 0.05 for pair in pairs]) > 0.22


def test_without_noise_a_worse_trial_has_no_chance_and_an_equal_one_has_half() -> None:
    samples = np.array([5.0, 5.0, 4.0])[:, None, None] * np.ones((3, 3, 4))
    assert_allclose(prob_better_than_best(samples), [0.5, 0.5, 0.0], atol=1e-12)


@pytest.mark.parametrize("shape", [(4, 1, 5), (1, 3, 5)])
def test_one_seed_or_one_trial_proves_nothing(shape: tuple[int, ...]) -> None:
    samples = np.random.default_rng(3).normal(size=shape)
    assert_allclose(prob_better_than_best(samples), 0.5)


# Single decisions.


def test_the_best_third_of_the_highest_rung_is_promoted_first() -> None:
    trials = [at(0, 5.0, 6.0), at(1, 5.0, 7.0), at(2, 5.0, 5.0), at(3, 9.0), at(4, 1.0)]
    assert ours(trials, TERMS) == Decision(Action.promote, 1)
    trials[1] = trials[1]._replace(busy=True)
    assert ours(trials, TERMS).number != 0  # one in three is already promoted
    assert ours(waiting(1.0, 3.0, 2.0), TERMS) == Decision(Action.promote, 1)


def test_a_rung_of_fewer_than_reduction_trials_promotes_none_while_others_can_start() -> None:
    assert ours([], TERMS) == Decision(Action.start)
    assert ours(waiting(1.0, 3.0), TERMS) == Decision(Action.start)


def test_the_worst_third_is_pruned_if_significantly_worse_and_the_others_wait() -> None:
    trials = [at(0, 9.0, busy=True), *waiting(9.0, 1.0, 1.1)[1:]]
    assert ours(trials, TERMS) == Decision(Action.prune, 1)
    trials[1] = ended(trials[1])
    assert ours(trials, TERMS) == Decision(Action.start)  # 1.1 is not in the worst third

    near = [at(0, 9.0, busy=True), at(1, 8.99), at(2, 8.995)]
    assert ours(near, TERMS) == Decision(Action.start)


def test_before_all_trials_have_started_half_of_the_budget_is_reserved() -> None:
    # Beyond the first rung, 9 * (0.5 * 900 - 100) = 3150 steps may be spent, half of them (1575)
    # early. A trial costs 200 steps to the second rung, and 600 more to the last one.
    second = [at(0, 8.0, 5.0, busy=True), ended(at(1, 9.0, 4.0)), ended(at(2, 7.0, 3.0))]
    trials = [*second, at(3, 9.9), at(4, 1.0), at(5, 1.0)]
    assert ours(trials, TERMS) == Decision(Action.promote, 3)  # 800 + 200 + 200 = 1200

    second[1] = ended(at(1, 9.0, 4.0, 4.0))
    assert ours([*second, *trials[3:]], TERMS) != Decision(Action.promote, 3)  # 800 + 800 + 200
    started = [*trials[3:], *(ended(at(number, 1.0)) for number in (6, 7, 8))]
    assert ours([*second, *started], TERMS) == Decision(Action.promote, 3)


def test_finally_the_most_promising_trials_are_promoted_while_the_budget_lasts() -> None:
    terms = replace(TERMS, trials=4)  # 1400 beyond the first rung; a trial costs 800 to the end
    trials = [ended(at(0, 9.0, 9.0)), at(1, 8.99), at(2, 8.98), ended(at(3, 1.0))]
    assert ours(trials, terms) == Decision(Action.promote, 1)
    trials[1] = trials[1]._replace(busy=True)  # 200 + 200, and 800 for another trial: 1200
    assert ours(trials, terms) == Decision(Action.promote, 2)

    trials[0] = ended(at(0, 9.0, 9.0, 9.0))  # 800 + 200 are spent, 400 are left
    assert ours(trials, terms) == Decision(Action.prune, 2)
    trials[2] = ended(trials[2])
    assert ours(trials, terms) == Decision(Action.wait)
    assert ours([ended(trial) for trial in trials], terms) == Decision(Action.wait)
    trials[1] = ended(at(1, 8.99, 1.0))
    assert ours(trials, terms) == Decision(Action.finish)


def test_one_trial_is_trained_to_the_end_whatever_it_costs() -> None:
    terms = replace(TERMS, trials=1, max_cost=0.2)
    assert ours([at(0, 1.0)], terms) == Decision(Action.promote, 0)
    assert ours([at(0, 1.0, 2.0)], terms) == Decision(Action.promote, 0)


def test_a_trial_that_has_reached_no_rung_and_is_not_in_training_comes_first() -> None:
    added = [at(0, 9.0, 9.0), Standing(1, busy=True), Standing(2)]
    assert ours(added, TERMS) == Decision(Action.promote, 2)


def test_a_trial_at_the_last_rung_is_complete() -> None:
    assert ours([at(0, 5.0), at(1, 5.0, 6.0, 7.0)], TERMS) == Decision(Action.complete, 1)
    last = at(0, 5.0, 6.0, 7.0, busy=True)  # its command still holds the lock
    assert ours([last], TERMS) == Decision(Action.complete, 0)


def test_the_order_of_standings_changes_no_step() -> None:
    rng = np.random.default_rng(4)
    for _ in range(50):
        trials = [at(number, *rng.normal(size=rng.integers(1, 3))) for number in range(9)]
        shuffled = [trials[index] for index in rng.permutation(9)]
        assert ours(shuffled, TERMS) == ours(trials, TERMS)


# Simulated studies.


def simulate_study(
    terms: Terms,
    workers: int,
    samples: Callable[[int, int], Floats],
    rng: np.random.Generator,
    *,
    failing: float = 0.02,
) -> tuple[list[Standing], float]:
    """Simulates a study and returns its trials and its cost. Workers finish in random order.

    `failing`: the probability that a trial fails at a rung. Checks that no worker waits before all
    trials have started.
    """
    trials: list[Standing] = []
    busy: list[int] = []
    cost = 0
    while True:
        step = ours(trials, terms)
        if len(busy) < workers and step.action in (Action.start, Action.promote):
            number = len(trials) if step.number is None else step.number
            if step.action is Action.start:
                trials.append(Standing(number))
            assert trials[number] == trials[number]._replace(busy=False, ended=False)
            rung = len(trials[number].samples)
            cost += terms.budgets[rung] - (terms.budgets[rung - 1] if rung else 0)
            trials[number] = trials[number]._replace(busy=True)
            busy.append(number)
        elif step.action is Action.prune:
            assert step.number is not None
            trials[step.number] = ended(trials[step.number])
        elif busy:
            assert len(busy) == workers or len(trials) == terms.trials
            number = busy.pop(rng.integers(len(busy)))
            reached = (*trials[number].samples, samples(number, len(trials[number].samples)))
            complete = len(reached) == len(terms.budgets)
            trials[number] = Standing(number, reached, ended=complete or rng.random() < failing)
        else:
            assert step == Decision(Action.finish)
            return trials, cost


def test_any_study_ends_with_its_trials_decided_and_within_its_budget() -> None:
    """The numbers of trials, rungs, seeds and workers are random, and trials may fail."""
    for seed in range(60):
        rng = np.random.default_rng(seed)
        reduction, rungs, seeds = (int(rng.integers(low, 5)) for low in (2, 1, 1))
        budgets = rung_budgets(900, rungs=rungs, reduction=reduction, interval=1)
        share = budgets[0] / 900 + rng.random()
        terms = Terms(budgets, int(rng.integers(1, 25)), reduction, rng.random() / 2, share)
        scores = rng.normal(size=(terms.trials, rungs, seeds, 3))
        workers = int(rng.integers(1, 6))
        trials, cost = simulate_study(terms, workers, lambda n, rung, s=scores: s[n, rung], rng)

        assert [trial.number for trial in trials] == list(range(terms.trials))
        assert all(trial.ended and not trial.busy for trial in trials)
        complete = sum(len(trial.samples) == rungs for trial in trials)
        one_to_the_end = 900 - budgets[0] if complete <= 1 else 0
        assert cost <= share * terms.trials * 900 + one_to_the_end + 1e-6


@pytest.mark.parametrize(
    ("trials", "rungs"),
    sampled([*product([4, 5, 6, 8, 12, 20, 32], [2, 3, 4])], every=6),
)
def test_without_noise_the_best_trial_wins_whenever_it_arrives(trials: int, rungs: int) -> None:
    budgets = rung_budgets(2700, rungs=rungs, reduction=3, interval=1)
    terms = Terms(budgets, trials)
    for order in range(20 if ALL else 5):
        rng = np.random.default_rng(order)
        scores = rng.permutation(trials).astype(float)
        for workers in (1, 4):
            ends, _ = simulate_study(
                terms,
                workers,
                lambda number, rung, s=scores: np.full((1, 3), s[number]),  # noqa: ARG005
                rng,
                failing=0.0,
            )
            complete = [trial.number for trial in ends if len(trial.samples) == rungs]
            assert scores.argmax() in complete


def test_the_best_trial_survives_where_a_bootstrap_prunes_it() -> None:
    """With noisy, crossing curves, at most 10 % of the best trials are pruned, at half the cost."""
    budgets = rung_budgets(45, rungs=3, reduction=3, interval=1)
    terms = Terms(budgets, 30)
    lands = [Landscape.drawn(np.random.default_rng(seed), 1.0, 0.6) for seed in range(20)]

    def rate_and_cost(decide: Decide) -> tuple[float, float]:
        studies = [judged(land, Contender(decide, terms), 0) for land in lands]
        return (
            float(np.mean([study["pruned_best"] for study in studies])),
            max(study["cost"] for study in studies),
        )

    rate, cost = rate_and_cost(ours)
    assert rate <= 0.1
    assert cost <= 0.5
    rate, _ = rate_and_cost(partial(significant, chance_by_bootstrap))
    assert rate > 0.2


# Rungs, and the evaluations that count.


def test_rungs_are_multiples_of_the_evaluation_interval_and_the_last_one_is_the_budget() -> None:
    assert rung_budgets(9000, rungs=3, reduction=3, interval=200) == (1000, 3000, 9000)
    assert rung_budgets(10_000, rungs=3, reduction=3, interval=1000) == (2000, 4000, 10_000)
    assert rung_budgets(2500, rungs=2, reduction=2, interval=1000) == (2000, 2500)
    assert rung_budgets(2500, rungs=1, reduction=2, interval=1000) == (2500,)


def test_too_few_evaluations_for_the_rungs_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"rungs=3 with reduction=3: 3 evaluations"):
        rung_budgets(3000, rungs=3, reduction=3, interval=1000)


def test_the_last_evaluations_count_but_no_more_than_the_later_half() -> None:
    curve = [1.0, 9.0, 3.0, 4.0, 5.0, 6.0]
    assert select_evaluations(curve, Score.last, 2) == [5.0, 6.0]
    assert select_evaluations(curve, Score.last, 5) == [4.0, 5.0, 6.0]
    assert select_evaluations(curve[:3], Score.last, 5) == [9.0, 3.0]
    assert select_evaluations([1.0], Score.last, 5) == [1.0]
    assert select_evaluations(curve, Score.best, 2) == [9.0]
    assert select_evaluations(curve, Score.auc, 2) == curve
