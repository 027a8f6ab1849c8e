"""Behaviour cloning: losses, and policies learned from a few known transitions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from border_cli.agent.bc import Bc, choice_loss, likelihood_loss, square_loss
from border_cli.agent.config import BcConfig
from border_cli.agent.continuous_policies import DeterministicPolicy, GaussianPolicy
from border_cli.agent.policies import CategoricalPolicy
from border_cli.config.compose import compose
from border_cli.core.interfaces import Policy
from border_cli.core.spaces import EnvSpec
from border_cli.core.types import Batch
from border_cli.errors import ConfigError, RunFailed
from tests.support.continuous_env import HALF, MIDDLE, batch, counted, data_set, spec
from tests.support.finite_differences import assert_slopes
from tests.support.policies import policy_of
from tests.support.rlax_numbers import of_rlax
from tests.support.spaces import reals


def bc(env: EnvSpec, seed: int = 0, **settings: Any) -> Bc:
    small = {"hidden": [16], "learning_rate": 0.02, "batch_size": 8}
    return Bc(BcConfig(**{**small, **settings}), spec=env, device="cpu", seed=seed)


def numbers(seed: int, *shape: int) -> torch.Tensor:
    draw = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=draw, dtype=torch.float64)


def test_the_loss_of_choices_is_rlaxs_cross_entropy():
    case = of_rlax("bc")
    loss = float(choice_loss(case["logits"], case["action"][:, None]))
    assert loss == pytest.approx(float(case["loss"].mean()), rel=1e-12)


def test_the_loss_of_one_action_is_squared():
    """The errors are 0.5 - 0.1 = 0.4 and 0 - 0.3 = -0.3, so the loss is (0.16 + 0.09) / 2."""
    outputs = torch.atanh(torch.tensor([[0.5, 0.0]], dtype=torch.float64))
    action = torch.tensor([[0.1, 0.3]], dtype=torch.float64)
    assert float(square_loss(outputs, action)) == pytest.approx(0.125, rel=1e-12)


def test_the_loss_of_a_distribution_is_its_likelihood():
    outputs, action = numbers(1, 6, 4) / 2, torch.tanh(numbers(2, 6, 2))
    mean, log_std = outputs[:, :2], outputs[:, 2:]
    squashed = torch.distributions.TransformedDistribution(
        torch.distributions.Normal(mean, log_std.exp()), torch.distributions.TanhTransform()
    )
    expected = -squashed.log_prob(action).sum(dim=1).mean()
    assert float(likelihood_loss(outputs, action)) == pytest.approx(float(expected), rel=1e-6)


def test_gradients_are_finite_differences():
    logits, action = numbers(3, 5, 3).requires_grad_(), torch.tensor([[0], [2], [1], [1], [0]])
    assert_slopes(lambda: choice_loss(logits, action), [logits])
    outputs, aims = numbers(4, 5, 4).requires_grad_(), torch.tanh(numbers(5, 5, 2))
    assert_slopes(lambda: square_loss(outputs[:, :2], aims), [outputs])
    assert_slopes(lambda: likelihood_loss(outputs, aims), [outputs])


def train(env: EnvSpec, data: Batch, updates: int, **settings: Any) -> tuple[Bc, Policy]:
    agent = bc(env, **settings)
    for _ in range(updates):
        agent.update(data)
    policy = policy_of(agent)
    return agent, policy


ONE, OTHER = np.array([1.0, 0, 0]), np.array([0, 1.0, 0])


def test_choices_are_made_as_often_as_in_the_data():
    """The data has action 0 once and action 2 three times in ONE, and only action 1 in OTHER."""
    obs = np.stack([ONE] * 4 + [OTHER] * 4)
    data = data_set(obs, [0, 2, 2, 2, 1, 1, 1, 1], np.zeros(8), 0, obs)
    _, policy = train(counted(), data, 400)
    assert isinstance(policy, CategoricalPolicy)
    obs = np.repeat(ONE[None].astype(np.float32), 20_000, axis=0)
    actions = policy.act(obs, explore=True)
    shares = np.bincount(actions, minlength=3) / len(actions)
    np.testing.assert_allclose(shares, [0.25, 0, 0.75], atol=0.015)
    both = np.stack([ONE, OTHER]).astype(np.float32)
    assert policy.act(both, explore=False).tolist() == [2, 1]


AIMS = np.array([[0.5, -0.5], [0.7, -0.1], [-0.8, 0.2], [-0.8, 0.4]])
SEEN = np.stack([ONE, ONE, OTHER, OTHER])
CONTINUOUS = data_set(SEEN, (MIDDLE + HALF * AIMS).astype(np.float32), np.zeros(4), 0, SEEN)
MEANS = np.array([[0.6, -0.3], [-0.8, 0.3]])


def test_one_action_is_the_mean_of_those_in_the_data():
    _, policy = train(spec(), CONTINUOUS, 400)
    assert isinstance(policy, DeterministicPolicy)
    obs = np.stack([ONE, OTHER]).astype(np.float32)
    for explore in (False, True):
        action = (policy.act(obs, explore=explore) - MIDDLE) / HALF
        np.testing.assert_allclose(action, MEANS, atol=0.01)


def test_a_distribution_has_the_mean_and_deviation_of_the_data():
    """Each state has two actions. Before tanh, the mean is half their sum and the deviation is
    half their difference."""
    agent, policy = train(spec(), CONTINUOUS, 1_500, stochastic=True, learning_rate=0.003)
    assert isinstance(policy, GaussianPolicy)
    before = np.arctanh(AIMS).reshape(2, 2, 2)  # [state, action, A]
    with torch.no_grad():
        outputs = agent.actor(torch.from_numpy(SEEN[::2]).float()).numpy()
    np.testing.assert_allclose(outputs[:, :2], before.mean(axis=1), atol=0.01)
    spread = np.exp(outputs[:, 2:])
    np.testing.assert_allclose(spread[0], before[0].std(axis=0), atol=0.01)
    np.testing.assert_allclose(spread[1, 1], before[1].std(axis=0)[1], atol=0.01)


def test_it_has_no_errors_to_rank_rows_by():
    update = bc(spec()).update(batch(0))
    with pytest.raises(RunFailed, match="returned no TD errors"):
        update.td_error()
    with pytest.raises(ConfigError, match=r"one without priorities.*the agent .bc."):
        compose("agent=bc", "env.id=CartPole-v1", "replay_buffer=prioritized")


@pytest.mark.parametrize(
    ("env", "settings", "match"),
    [
        (counted(), {"stochastic": True}, r"agent\.stochastic must be false.*Discrete\(3\)"),
        (spec(), {"normalize_reward": True}, r"agent\.normalize_reward must be false"),
        (
            EnvSpec("Free-v0", spec().observation, reals(2), None),
            {},
            r"agent=bc needs a Discrete, MultiDiscrete, MultiBinary or a Box .*finite bounds.*Free",
        ),
    ],
)
def test_invalid_settings_are_refused(env: EnvSpec, settings: dict[str, Any], match: str):
    with pytest.raises(ConfigError, match=match):
        bc(env, **settings)
