"""Losses and targets of AWAC and IQL against independent calculations, in double precision."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from border_cli.agent.awac import advantage_weights, cloning_loss, weighted_cloning
from border_cli.agent.iql import expectile_loss
from tests.support.finite_differences import assert_slopes
from tests.support.offline_agents import (
    assert_critics,
    awac,
    counted_awac,
    counted_iql,
    dense,
    double,
    in_double,
    iql,
    smallest,
)
from tests.support.rlax_numbers import of_rlax


def numbers(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape)


def test_weights_are_exponentials_up_to_a_limit():
    advantage = double([[0.0], [0.5], [-1.0], [3.0]])
    weights = advantage_weights(advantage, inv_lambda=2.0, exp_adv_max=20.0, softmax=False)
    np.testing.assert_allclose(weights[:, 0], [1, np.e, np.exp(-2), 20], rtol=1e-12)
    huge = advantage_weights(double([[1e4]]), inv_lambda=2.0, exp_adv_max=20.0, softmax=False)
    assert huge.item() == 20


def test_softmax_weights_have_mean_1_over_a_batch():
    """Softmax weights are scaled by the batch size: equal advantages give weights of 1."""
    advantage = double(np.log([[1.0], [2.0], [5.0]]))
    weights = advantage_weights(advantage, inv_lambda=1.0, exp_adv_max=100.0, softmax=True)
    np.testing.assert_allclose(weights[:, 0], [3 / 8, 6 / 8, 15 / 8], rtol=1e-12)
    # -(1/8 * -4 + 2/8 * -2 + 5/8 * -0.8)
    loss = cloning_loss(double([[-4.0], [-2.0], [-0.8]]), weights, double([[1.0]] * 3))
    assert loss.item() == pytest.approx(1.5, rel=1e-12)


def test_sampling_weights_count_once_in_cloning():
    loss = cloning_loss(double([[-1.0], [-2.0]]), double([[3.0], [1.0]]), double([[0.5], [2.0]]))
    assert loss.item() == pytest.approx((1.5 + 4) / 2, rel=1e-12)


@pytest.mark.parametrize("expectile", [0.1, 0.5, 0.9])
def test_the_expectile_loss_is_that_of_rlax(expectile):
    case = of_rlax("expectile")
    loss = expectile_loss(case["q"] - case["v"], expectile)
    np.testing.assert_allclose(loss, case[f"loss {expectile}"], rtol=1e-12)


@pytest.mark.parametrize(("expectile", "expected"), [(0.5, 1.0), (0.75, 1.5), (0.9, 1.8)])
def test_the_minimum_of_the_loss_is_the_expectile(expectile, expected):
    """For values 0 and 2, equally likely: tau (2 - m) = (1 - tau) (m - 0), so m = 2 tau."""
    grid = torch.linspace(0, 2, 2_001, dtype=torch.float64)
    losses = sum(expectile_loss(value - grid, expectile) for value in (0.0, 2.0))
    assert grid[losses.argmin()].item() == pytest.approx(expected, abs=1e-3)


def test_the_critics_of_awac_learn_the_value_of_what_the_actor_would_do():
    agent, batch = in_double(awac())
    noise = numbers(8, 2)
    loss = agent.critic_loss(batch, double(noise))
    mean = np.tanh(dense(agent.actor, batch.next_obs.numpy()))
    action = np.clip(mean + np.exp(agent.actor.log_std.detach().numpy()) * noise, -1, 1)
    value = smallest(agent.critics.target, batch.next_obs.numpy(), action)
    y = batch.reward.numpy()[:, 0] + batch.discount.numpy()[:, 0] * value
    assert_critics(agent, batch, loss, y, batch.action.numpy())


def test_the_actor_of_awac_clones_by_the_exponential_of_the_advantage():
    agent, batch = in_double(awac(inv_lambda=4.0, exp_adv_max=1.5))
    noise, q = numbers(8, 2), numbers(8, seed=2)
    loss, advantage = agent.actor_loss(batch, double(q)[:, None], double(noise))
    std = np.exp(agent.actor.log_std.detach().numpy())
    mean = np.tanh(dense(agent.actor, batch.obs.numpy()))
    sampled_action = np.clip(mean + std * noise, -1, 1)
    expected = q - smallest(agent.critics.online, batch.obs.numpy(), sampled_action)
    np.testing.assert_allclose(advantage[:, 0], expected, rtol=1e-9)
    weights = np.minimum(np.exp(4 * expected), 1.5)
    assert 0 < (weights == 1.5).sum() < 8
    squares = ((batch.action.numpy() - mean) / std) ** 2
    log_prob = (-0.5 * squares - np.log(std) - 0.5 * np.log(2 * np.pi)).sum(1)
    by_hand = -(batch.weight.numpy()[:, 0] * weights * log_prob).mean()
    assert loss.item() == pytest.approx(by_hand, rel=1e-9)


def test_v_of_iql_is_pulled_by_the_target_critics():
    agent, batch = in_double(iql(expectile=0.8))
    agent.critics.target.mlp.biases[2].data[0] += 0.3  # so that either critic can be the minimum
    result = agent.value_loss(batch, batch.action)
    q = smallest(agent.critics.target, batch.obs.numpy(), batch.action.numpy())
    error = q - dense(agent.value, batch.obs.numpy())[:, 0]
    by_hand = batch.weight.numpy()[:, 0] * np.where(error < 0, 0.2, 0.8) * error**2
    assert result.loss.item() == pytest.approx(by_hand.mean(), rel=1e-9)
    np.testing.assert_allclose(result.advantage[:, 0], error, rtol=1e-9)
    assert not result.advantage.requires_grad


def test_the_critics_of_iql_learn_the_reward_and_v_of_what_followed():
    agent, batch = in_double(iql())
    loss = agent.critic_loss(batch, batch.action)
    value = dense(agent.value, batch.next_obs.numpy())[:, 0]
    y = batch.reward.numpy()[:, 0] + batch.discount.numpy()[:, 0] * value
    assert_critics(agent, batch, loss, y, batch.action.numpy())


def test_counted_actions_are_one_number_each_to_the_critics():
    agent, batch = in_double(counted_iql(), 3)
    one_hot = np.eye(3)[batch.action[:, 0]]
    critic_loss = agent.critic_loss(batch, double(one_hot))
    value = dense(agent.value, batch.next_obs.numpy())[:, 0]
    y = batch.reward.numpy()[:, 0] + batch.discount.numpy()[:, 0] * value
    assert_critics(agent, batch, critic_loss, y, one_hot)
    loss = agent.actor_loss(batch, double(np.zeros((8, 1))))
    logits = dense(agent.actor, batch.obs.numpy())
    shares = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    log_prob = np.log(shares[np.arange(8), batch.action[:, 0]])
    expected = -(batch.weight.numpy()[:, 0] * log_prob).mean()
    assert loss.item() == pytest.approx(expected, rel=1e-9)


def test_gradients_are_slopes():
    agent, batch = in_double(awac())
    noise, q = double(numbers(8, 2)), double(numbers(8, 1, seed=2))
    assert_slopes(
        lambda: agent.critic_loss(batch, noise).loss, list(agent.critics.online.parameters())
    )
    fixed = double(numbers(8, 1, seed=4))
    assert_slopes(
        lambda: weighted_cloning(agent.actor, agent.actor(batch.obs), batch, fixed, agent.config),
        list(agent.actor.parameters()),
    )
    assert agent.actor_loss(batch, q, noise)[0].requires_grad
    agent, batch = in_double(iql())
    action = batch.action
    assert_slopes(lambda: agent.value_loss(batch, action).loss, list(agent.value.parameters()))
    assert_slopes(
        lambda: agent.critic_loss(batch, action).loss, list(agent.critics.online.parameters())
    )


def test_gradients_of_choices_are_slopes():
    agent, batch = in_double(counted_awac(), 3)
    fixed = double(numbers(8, 1))
    assert_slopes(
        lambda: weighted_cloning(agent.actor, agent.actor(batch.obs), batch, fixed, agent.config),
        list(agent.actor.parameters()),
    )
