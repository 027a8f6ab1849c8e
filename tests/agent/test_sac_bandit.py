"""Exact soft values of a bandit and of the step before it."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from border_cli.agent.config import SacConfig
from border_cli.agent.sac import Sac
from border_cli.core.spaces import EnvSpec
from border_cli.core.types import Batch
from tests.support.continuous_env import data_set
from tests.support.spaces import box

ENT_COEF, GAMMA, ROWS = 0.2, 0.9, 128
LIMIT = 3.0  # env actions are in [-3, 3], and scaled to [-1, 1]
BEFORE = np.linspace(-8, 8, 4_001)  # integration points, before tanh


def reward(action: NDArray[np.float64]) -> NDArray[np.float64]:
    return 0.5 * action


def soft_value(mean: float, std: float) -> float:
    """E[r(a) - alpha log pi(a)] of a squashed Gaussian, by numerical integration."""
    log_normal = -0.5 * ((BEFORE - mean) / std) ** 2 - np.log(std) - 0.5 * np.log(2 * np.pi)
    log = log_normal - 2 * (np.log(2) - BEFORE - np.logaddexp(0, -2 * BEFORE))
    gain = np.exp(log_normal) * (reward(np.tanh(BEFORE)) - ENT_COEF * log)
    return float(np.trapezoid(gain, BEFORE))


def best_soft_value() -> tuple[float, float, float]:
    """Returns value, mean and std of the best squashed Gaussian, by grid search."""
    means, stds = np.linspace(0, 2, 101), np.linspace(0.5, 1.5, 51)
    return max((soft_value(mean, std), mean, std) for mean in means for std in stds)


def rows(rng: np.random.Generator) -> Batch:
    """A batch; half of its rows lead from the first state (0) to the bandit (1), without reward."""
    state = (np.arange(ROWS) % 2).astype(np.float32)
    action = rng.uniform(-1, 1, ROWS)
    ends = state == 1
    scaled = (LIMIT * action).astype(np.float32)[:, None]
    rewards, discount = np.where(ends, reward(action), 0), np.where(ends, 0, GAMMA)
    return data_set(state[:, None], scaled, rewards, discount, np.ones((ROWS, 1)))


def agent(learning_rate: float) -> Sac:
    config = SacConfig(
        ent_coef=ENT_COEF,
        hidden=[32, 32],
        learning_rate=learning_rate,
        tau=0.05,
        batch_size=ROWS,
    )
    spec = EnvSpec(
        id="Bandit-v0",
        observation=box((1,), low=-1),
        action=box((1,), low=-LIMIT, high=LIMIT),
        max_episode_steps=2,
    )
    return Sac(config, spec=spec, device="cpu", seed=0)


@pytest.mark.slow
def test_a_bandit_and_the_step_before_it_get_their_exact_soft_values():
    value, mean, std = best_soft_value()
    rng = np.random.default_rng(0)
    fast, slow = agent(1e-2), agent(1e-3)  # the second averages out the noise of the first
    with fast.learner_thread():
        for _ in range(600):
            fast.update(rows(rng))
        slow.load_state_dict(fast.state_dict())
        for _ in range(400):
            slow.update(rows(rng))
    with torch.no_grad():
        at_bandit = slow.actor(torch.ones(1, 1))
        (found_mean, found_std) = at_bandit[0, 0].item(), at_bandit[0, 1].exp().item()
        action = torch.linspace(-0.95, 0.95, 39)[:, None]
        q = slow.critics.online(torch.ones(39, 1), action).mean(dim=0).squeeze(1)
        before = slow.critics.online(torch.zeros(39, 1), action)  # [2, 39, 1]
    np.testing.assert_allclose(q, reward(action.squeeze(1).numpy()), atol=0.01)
    assert soft_value(found_mean, found_std) == pytest.approx(value, abs=0.001)
    assert (found_mean, found_std) == pytest.approx((mean, std), abs=0.1)
    assert before.mean().item() == pytest.approx(GAMMA * value, abs=0.01)
    np.testing.assert_allclose(before, GAMMA * value, atol=0.01)
