"""Statistics over seeds, checked by hand and against rliable 1.2.0 with the same draws."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose
from numpy.typing import NDArray

from border_cli.analysis.statistics import (
    Estimate,
    Scores,
    Statistic,
    bootstrap,
    improvement,
    iqm,
    iqm_over_seeds,
    mean,
    mean_over_seeds,
    profile,
    t_quantile,
)

OURS = np.array(  # 5 seeds, 3 environments
    [[0.1, 0.9, 0.35], [0.4, 0.7, 0.5], [0.2, 1.2, 0.55], [0.8, 0.3, 0.65], [0.6, 0.95, 0.15]]
)
THEIRS = np.array([[0.3, 0.5, 0.45], [0.4, 0.8, 0.25], [0.1, 0.6, 0.75], [0.7, 0.2, 0.05]])
RESAMPLES = 200


def draws_of_rliable(*several: NDArray[np.float64]) -> list[NDArray[np.intp]]:
    """The seed indices that `StratifiedBootstrap` draws after np.random.seed(7)."""
    generator = np.random.RandomState(7)
    rounds = [
        [generator.choice(len(scores), scores.shape, replace=True) for scores in several]
        for _ in range(RESAMPLES)
    ]
    stacked = [np.stack(draws) for draws in zip(*rounds, strict=True)]  # [R, S, envs]
    return [indices[:, :, env] for indices in stacked for env in range(indices.shape[2])]


def columns(*several: NDArray[np.float64]) -> Scores:
    return [column for scores in several for column in scores.T]


@pytest.mark.parametrize(
    ("degrees", "quantile"),  # from textbook tables
    [(1, 12.706), (2, 4.303), (3, 3.182), (4, 2.776), (9, 2.262), (30, 2.042), (120, 1.980)],
)
def test_quantiles_are_those_of_students_table(degrees: int, quantile: float) -> None:
    assert t_quantile(degrees) == pytest.approx(quantile, abs=5e-4)


def test_the_mean_has_students_interval() -> None:
    estimate = mean_over_seeds(np.array([[1.0, 0.0], [2.0, 0.0], [3.0, 0.0]]))
    half = 4.302653 / np.sqrt(3)  # deviation 1, two degrees of freedom
    assert_allclose(estimate.mid, [2.0, 0.0])
    assert_allclose(estimate.low, [2.0 - half, 0.0], rtol=1e-6)
    assert_allclose(estimate.high, [2.0 + half, 0.0], rtol=1e-6)


def test_one_seed_has_no_interval() -> None:
    one = np.array([[3.0, 4.0]])
    for estimate in (mean_over_seeds(one), iqm_over_seeds(one, np.random.default_rng(0))):
        assert_allclose(estimate.mid, [3.0, 4.0])
        assert np.isnan([estimate.low, estimate.high]).all()


def test_the_interquartile_mean_leaves_out_whole_runs() -> None:
    assert iqm([np.array([8.0, 1.0, 3.0, 100.0, 4.0, 5.0, 6.0, -50.0])]) == 4.5  # 3, 4, 5, 6
    assert iqm([np.array([1.0, 2.0, 9.0])]) == 4.0  # a quarter of 3 runs is rounded to 0
    assert iqm([np.array([1.0, 2.0]), np.array([3.0, 9.0])]) == 2.5  # over all environments


def test_a_tie_is_half_an_improvement() -> None:
    ours, theirs = [np.array([1.0, 2.0])], [np.array([1.0, 0.0, 3.0])]
    assert improvement(ours, theirs) == pytest.approx((0.5 + 1 + 0 + 1 + 1 + 0) / 6)


@pytest.mark.parametrize(
    ("statistic", "mid", "low", "high"),
    [
        (iqm, 0.5388888888888889, 0.39444444444444443, 0.6559722222222223),
        (mean, 0.5566666666666668, 0.4566666666666667, 0.6700833333333334),
        (
            profile(np.linspace(0.0, 1.0, 5)),
            [1.0, 0.8, 0.5333333333, 0.2666666667, 0.0666666667],
            [1.0, 0.6, 0.3333333333, 0.1333333333, 0.0],
            [1.0, 0.935, 0.7333333333, 0.4, 0.2],
        ),
    ],
)
def test_a_bootstrap_interval_is_that_of_rliable(
    statistic: Statistic, mid: object, low: object, high: object
) -> None:
    estimate = bootstrap(statistic, columns(OURS), draws_of_rliable(OURS))
    assert_allclose(np.stack(estimate), np.stack([mid, low, high]), rtol=1e-9)  # type: ignore[call-overload]


def test_the_interval_of_an_improvement_is_that_of_rliable() -> None:
    estimate = bootstrap(
        lambda scores: improvement(scores[:3], scores[3:]),
        columns(OURS, THEIRS),
        draws_of_rliable(OURS, THEIRS),
    )
    assert_allclose(np.stack(estimate), [0.65, 0.4495833333333333, 0.8252083333333334], rtol=1e-9)


def test_every_point_of_a_curve_is_bootstrapped() -> None:
    curve = np.stack([OURS[:, 0], 10 * OURS[:, 0]], axis=1)  # [S, 2]
    estimate: Estimate = iqm_over_seeds(curve, np.random.default_rng(0))
    assert estimate.mid[0] == pytest.approx((0.2 + 0.4 + 0.6) / 3)
    assert estimate.low[0] < estimate.mid[0] < estimate.high[0]
    for points in estimate:
        assert points[1] == pytest.approx(10 * points[0])
