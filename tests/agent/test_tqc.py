"""Truncated quantile critics: by hand, by brute force, and on known returns."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from border_cli.agent.qrdqn import distance
from border_cli.agent.tqc import quantile_loss, soft_quantiles, truncate_quantiles
from border_cli.core.types import Batch
from border_cli.nn.batch import TensorBatch
from tests.support.continuous_env import HALF, MIDDLE, batch, data_set, spec
from tests.support.finite_differences import assert_slopes
from tests.support.offline_agents import double, in_double
from tests.support.soft_agents import tqc


def test_the_largest_quantiles_of_all_critics_together_are_left_out():
    quantiles = double([[[1, 9, 2]], [[8, 3, 7]]])  # [2, 1, 3]
    assert truncate_quantiles(quantiles, 1).tolist() == [[1, 2, 3, 7]]
    assert truncate_quantiles(quantiles, 2).tolist() == [[1, 2]]
    assert truncate_quantiles(quantiles, 0).tolist() == [[1, 2, 3, 7, 8, 9]]
    rows = double([[[1, 9], [5, 6]], [[8, 3], [0, 7]]])  # [2, 2, 2]
    assert truncate_quantiles(rows, 1).tolist() == [[1, 3], [0, 5]]


def test_every_quantile_of_a_target_is_discounted_with_the_entropy():
    nothing = torch.zeros(2, 1)
    columns = double([[1], [2]]), double([[0.5], [0]])
    rows = TensorBatch(nothing, nothing, *columns, nothing, nothing)
    log_prob, ent_coef = double([[2], [1]]), double(0.25)
    target = soft_quantiles(rows, double([[4, 6], [9, 9]]), log_prob, ent_coef)
    assert target.tolist() == [[2.75, 3.75], [2, 2]]


def brute_force(quantiles: np.ndarray, target: np.ndarray, weight: np.ndarray) -> float:
    """Computes equation 13 pair by pair."""
    members, rows, count = quantiles.shape
    total = 0.0
    for critic in range(members):
        for row in range(rows):
            for m in range(count):
                fraction = (2 * m + 1) / (2 * count)
                for y in target[row]:
                    error = y - quantiles[critic, row, m]
                    size = abs(error)
                    huber = size**2 / 2 if size <= 1 else size - 0.5
                    total += weight[row, 0] * abs(fraction - (error < 0)) * huber
    return total / (rows * count * target.shape[1])


def randn(*shape: int, seed: int) -> Tensor:
    return double(2 * np.random.default_rng(seed).normal(size=shape))


def test_the_loss_is_that_of_all_pairs():
    quantiles, target = randn(3, 4, 5, seed=0), randn(4, 6, seed=1)
    weight = double([[0.2], [1], [0], [3]])
    loss = quantile_loss(quantiles, target, weight).item()
    expected = brute_force(quantiles.numpy(), target.numpy(), weight.numpy())
    assert loss == pytest.approx(expected, rel=1e-6)


def test_the_loss_has_the_gradient_of_finite_differences():
    quantiles, target, weight = randn(3, 4, 5, seed=0), randn(4, 6, seed=1), randn(4, 1, seed=2)
    quantiles.requires_grad_()
    assert_slopes(lambda: quantile_loss(quantiles, target, weight), [quantiles])


def test_the_actor_climbs_the_mean_of_all_quantiles():
    agent, rows = in_double(tqc())
    noise = randn(8, 2, seed=0)
    action, _ = agent.sample_action(rows.obs, noise)
    value = agent.critics.online(rows.obs, action).mean(dim=(0, 2))
    expected = -(rows.weight[:, 0] * value).mean()
    torch.testing.assert_close(agent.actor_loss(rows, noise, double(0)).loss, expected)


def test_the_priority_of_a_row_is_how_far_all_quantiles_are_from_those_of_its_target():
    """The mean over all pairs and critics; the first rows are terminal, so y is the reward."""
    agent, rows = tqc(num_critics=2), batch(0)
    rows.discount[:4] = 0
    with torch.no_grad():  # quantiles on both sides of every reward
        agent.critics.online.mlp.biases[-1].copy_(
            torch.tensor([[-9.0, -3, 0, 4, 10]]).expand(2, 1, 5)
        )
    obs, action = torch.from_numpy(rows.obs), torch.from_numpy((rows.action - MIDDLE) / HALF)
    with torch.no_grad():
        before = agent.critics.online(obs, action).numpy()  # [2, B, 5]
    errors = agent.update(rows).td_error()
    for row in range(4):
        expected = np.mean([abs(rows.reward[row] - z) for z in before[:, row].ravel()])
        assert errors[row] == pytest.approx(expected, rel=1e-5)
    assert errors.shape == (8,)


def test_rows_whose_quantiles_are_wrong_in_spread_alone_have_a_priority():
    """The return is 0 or 4. If all quantiles are 2, the mean is right but the spread is not."""
    quantiles, target = double([[[2, 2]], [[2, 2]]]), double([[0, 4]])
    assert distance(quantiles, target).tolist() == [[2], [2]]
    assert distance(double([[[0, 4]], [[1, 4]]]), target).tolist() == [[2], [(1 + 3 + 4 + 0) / 4]]


@pytest.mark.slow
@pytest.mark.parametrize("dropped", [0, 1])
def test_quantiles_of_a_return_that_is_known(dropped: int):
    """The episode ends after one step with a return of 0 or 4, equally likely, for any action.

    The fractions are 0.1, 0.3, … 0.9. The Huber loss moves quantiles away from 0 and 4 by up to 1:
    0.1 * 1 = 0.9 * q gives 0.111, 0.3 = 0.7 q gives 0.429, and 0.5 * 1 = 0.5 * 1 holds anywhere in
    between. Quantiles are dropped from bootstrapped values only, not from rewards.
    """
    agent = tqc(num_critics=2, dropped_quantiles=dropped, tau=1.0, learning_rate=5e-3)
    rng = np.random.default_rng(0)
    for _ in range(400):
        agent.update(gamble(rng))
    with torch.no_grad():
        learned = agent.critics.online(torch.zeros(1, 3), torch.zeros(1, 2)).squeeze(1)  # [2, 5]
    expected = [1 / 9, 3 / 7, 2, 4 - 3 / 7, 4 - 1 / 9]
    for quantiles in learned.tolist():
        assert quantiles[:2] == pytest.approx(expected[:2], abs=0.1)
        assert 0.9 < quantiles[2] < 3.1
        assert quantiles[3:] == pytest.approx(expected[3:], abs=0.1)


def gamble(rng: np.random.Generator, rows: int = 64) -> Batch:
    nothing = np.zeros((rows, 3))
    low, high = spec().action.low, spec().action.high  # type: ignore[union-attr]
    action = rng.uniform(low, high, (rows, 2)).astype(np.float32)
    return data_set(nothing, action, rng.permutation(np.arange(rows) % 2 * 4), 0, nothing)
