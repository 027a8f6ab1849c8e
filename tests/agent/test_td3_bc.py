"""TD3+BC: the loss by hand, and the balance between imitation and value."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from border_cli.agent.config import Td3BcConfig
from border_cli.agent.td3_bc import Td3Bc, imitating_loss
from border_cli.config.compose import compose
from border_cli.errors import ConfigError
from border_cli.nn.batch import TensorBatch
from tests.support.case_sampling import sampled
from tests.support.continuous_env import HALF, MIDDLE, grid, of_every_action, spec
from tests.support.finite_differences import assert_slopes
from tests.support.policies import policy_of


def td3_bc(seed: int = 0, **settings: Any) -> Td3Bc:
    small = {"hidden": [16], "learning_rate": 0.01, "batch_size": 8}
    return Td3Bc(Td3BcConfig(**{**small, **settings}), spec=spec(), device="cpu", seed=seed)


def tensor(*rows: list[float]) -> torch.Tensor:
    return torch.tensor(rows, dtype=torch.float64)


ROWS = TensorBatch(
    obs=tensor([0.1, 0.2, 0.3], [-0.4, 0.5, -0.6]),
    action=tensor([0.5, -0.5], [0.0, 1.0]),
    reward=tensor([0.0], [0.0]),
    discount=tensor([0.0], [0.0]),
    next_obs=tensor([0.0, 0.0, 0.0], [0.0, 0.0, 0.0]),
    weight=tensor([1.0], [0.5]),
)


def test_the_loss_by_hand():
    """mean |Q| = (3 + 1) / 2 = 2 and lambda = 2.5 / 2. The imitation errors are
    (0.04 + 0.16) / 2 = 0.1 and (0.01 + 0.25) / 2 = 0.13, and the loss is
    (1 (0.1 - 3.75) + 0.5 (0.13 + 1.25)) / 2 = -1.48."""
    loss = imitating_loss(tensor([3.0], [-1.0]), tensor([0.7, -0.1], [0.1, 0.5]), ROWS, 2.5)
    assert float(loss) == pytest.approx(-1.48, rel=1e-12)


def test_values_of_any_size_weigh_the_same():
    action = tensor([0.7, -0.1], [0.1, 0.5])
    losses = [
        float(imitating_loss(size * tensor([3.0], [-1.0]), action, ROWS, 2.5))
        for size in (1.0, 1e3, 1e-3)
    ]
    assert losses == pytest.approx([-1.48] * 3, rel=1e-9)
    nothing = imitating_loss(tensor([0.0], [0.0]), action, ROWS, 2.5)
    assert float(nothing) == pytest.approx((0.1 + 0.5 * 0.13) / 2)


def test_gradients_are_finite_differences():
    """The reference holds lambda fixed, because no gradient flows through it."""
    agent = td3_bc(1, hidden=[4], activation="tanh")
    for module in (agent.actor, agent.critics.online):
        module.double()
    agent.first_critic = agent.critics.online.first_critic()
    with torch.no_grad():
        q = agent.first_critic(ROWS.obs, torch.tanh(agent.actor(ROWS.obs)))
    scale = 2.5 / float(q.abs().mean())
    parameters = list(agent.actor.parameters())

    def with_fixed_scale() -> torch.Tensor:
        action = torch.tanh(agent.actor(ROWS.obs))
        value = agent.first_critic(ROWS.obs, action).squeeze(0)
        errors = (action - ROWS.action).square().mean(dim=1, keepdim=True)
        return (ROWS.weight * (errors - scale * value)).mean()

    assert_slopes(with_fixed_scale, parameters)
    actual, reference = (
        torch.autograd.grad(loss, parameters)
        for loss in (agent.actor_loss(ROWS), with_fixed_scale())
    )
    torch.testing.assert_close(actual, reference, rtol=1e-9, atol=1e-12)


def learn_action(alpha: float) -> np.ndarray:
    """Returns the action learned from data with all actions and Q(a) = 1 + a_0 / 2."""
    agent = td3_bc(policy_delay=1, alpha=alpha)
    rows = of_every_action(grid(), 1 + grid()[:, 0] / 2, 0)
    for _ in range(400):
        agent.update(rows)
    policy = policy_of(agent)
    action = (policy.act(np.zeros((1, 3), np.float32), explore=False) - MIDDLE) / HALF
    return np.asarray(action[0])


@pytest.mark.parametrize(
    ("alpha", "first"), sampled([(0.5, 0.2247), (1e-3, 0.0), (50.0, 1.0)], every=3)
)
def test_alpha_says_how_far_the_actor_leaves_the_data(alpha: float, first: float):
    """The derivatives of the imitation loss, a_0, and of Q, alpha / (1 + a_0 / 2) / 2, are equal at
    a_0 = sqrt(1 + alpha) - 1, unless that is beyond the bound."""
    assert learn_action(alpha)[0] == pytest.approx(first, abs=0.02)


def test_its_file_normalises_observations():
    agent = compose("agent=td3_bc", "env.id=Pendulum-v1").agent
    assert isinstance(agent, Td3BcConfig)
    assert agent.normalize_obs
    assert agent.alpha == 2.5


def test_an_alpha_of_nothing_is_refused():
    with pytest.raises(ConfigError, match=r"agent\.alpha must be above 0, got 0"):
        td3_bc(alpha=0.0)
