"""Targets and losses of TD3, by hand, by finite differences and against rlax."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from border_cli.agent.config import Td3Config
from border_cli.agent.td3 import Td3, smooth_action, td_target
from border_cli.nn.batch import TensorBatch
from tests.support.continuous_env import spec
from tests.support.finite_differences import assert_slopes
from tests.support.offline_agents import assert_critics, dense, double, in_double, smallest
from tests.support.rlax_numbers import of_rlax


def td3(seed: int = 0, **settings: Any) -> Td3:
    small = {"hidden": [8, 6], "learning_rate": 0.01, "batch_size": 8}
    return Td3(Td3Config(**{**small, **settings}), spec=spec(), device="cpu", seed=seed)


def test_noise_on_target_actions_is_cut_twice():
    """0.2 n is clipped to [-0.5, 0.5], and the sum to [-1, 1]."""
    action = torch.tensor([[0.3, 0.9, -0.9, 0.0]], dtype=torch.float64)
    noise = torch.tensor([[1.0, 2.0, -0.25, -9.0]], dtype=torch.float64)
    expected = [[0.5, 1.0, -0.95, -0.5]]
    noisy = smooth_action(action, noise, std=0.2, clip=0.5).numpy()
    np.testing.assert_allclose(noisy, expected, rtol=1e-12)


def test_the_target_is_the_reward_and_the_smaller_of_the_next_values():
    """1 + 0.9 * min(5, 4) = 4.6, and -2 for the terminal transition."""
    nothing = torch.zeros(2, 1)
    reward, discount = double([[1.0], [-2.0]]), double([[0.9], [0.0]])
    rows = TensorBatch(nothing, nothing, reward, discount, nothing, nothing)
    q_next = double([[[5.0], [7.0]], [[4.0], [8.0]]])  # [E, B, 1]
    np.testing.assert_allclose(td_target(rows, q_next).numpy(), [[4.6], [-2.0]], rtol=1e-12)


@pytest.mark.parametrize("num_critics", [1, 2])
def test_gradients_are_finite_differences(num_critics: int):
    agent, rows = in_double(td3(hidden=[4], num_critics=num_critics, activation="tanh"))
    noise = torch.full((8, 2), 0.4, dtype=torch.float64)
    assert_slopes(
        lambda: agent.critic_loss(rows, noise).loss, list(agent.critics.online.parameters())
    )
    assert_slopes(lambda: agent.actor_loss(rows), list(agent.actor.parameters()))


def test_the_actor_climbs_along_the_deterministic_policy_gradient():
    """rlax's gradient with respect to each action is -dQ/da; ours is the weighted mean of these."""
    agent, rows = in_double(td3(2))
    rows, case = TensorBatch(*(column[:6] for column in rows[:6])), of_rlax("td3")
    parameters = list(agent.actor.parameters())
    action = torch.tanh(agent.actor(rows.obs))  # [B, A]
    agent.first_critic = lambda _, action: (case["dq_da"] * action).sum(1, keepdim=True)[None]
    slope = case["gradient"]  # [B, A]
    expected = torch.autograd.grad((rows.weight * slope * action).sum() / 6, parameters)
    gradients = torch.autograd.grad(agent.actor_loss(rows), parameters)
    for actual, reference in zip(gradients, expected, strict=True):
        torch.testing.assert_close(actual, reference, rtol=1e-6, atol=1e-12)


def test_the_critics_learn_the_value_of_what_the_target_actor_would_do():
    agent, rows = in_double(td3())
    agent.actor_target.mlp.layers[0].weight.data += 0.1
    agent.critics.target.mlp.biases[2].data[0] += 0.3  # so that either critic can be the minimum
    noise = np.random.default_rng(0).normal(size=(8, 2))
    loss = agent.critic_loss(rows, torch.from_numpy(noise))
    clipped = np.clip(0.2 * noise, -0.5, 0.5)
    action = np.clip(np.tanh(dense(agent.actor_target, rows.next_obs.numpy())) + clipped, -1, 1)
    value = smallest(agent.critics.target, rows.next_obs.numpy(), action)
    y = rows.reward.numpy()[:, 0] + rows.discount.numpy()[:, 0] * value
    assert_critics(agent, rows, loss, y, rows.action.numpy())
