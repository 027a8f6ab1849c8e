"""Conservative Q-learning: the penalty by integration and by hand, and its effect on values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from border_cli.agent.cql import ConservativeNoise, Cql, conservative_gaps, soft_maximum
from border_cli.core.spaces import EnvSpec
from border_cli.core.types import Batch
from border_cli.errors import CheckpointError
from tests.support.continuous_env import batch, data_set
from tests.support.finite_differences import assert_slopes
from tests.support.offline_agents import cql, critic, double, in_double, sampled, smallest
from tests.support.soft_agents import sac
from tests.support.spaces import box


def test_the_soft_maximum_is_the_log_of_an_integral():
    """The integral of exp(a) over [-1, 1] is e - 1/e, for actions drawn from any density."""
    expected = np.log(np.e - 1 / np.e)
    draw = torch.Generator().manual_seed(0)
    even = 2 * torch.rand(200_000, generator=draw, dtype=torch.float64) - 1
    # Density (1 + a) / 2, sampled by inverting its distribution function (1 + a)^2 / 4.
    rising = 2 * torch.rand(200_000, generator=draw, dtype=torch.float64).sqrt() - 1
    action = torch.cat((even, rising))
    log_density = torch.cat((torch.full_like(even, np.log(0.5)), torch.log((1 + rising) / 2)))
    for part in (slice(0, 200_000), slice(200_000, None), slice(None)):
        q, log = action[part].view(1, -1, 1, 1), log_density[part].view(-1, 1, 1)
        assert soft_maximum(q, log).item() == pytest.approx(expected, abs=0.01)


def test_gaps_are_means_over_weighted_rows():
    maxima, q = double([[[3.0], [4.0]], [[1.0], [1.0]]]), double([[[1.0], [6.0]], [[1.0], [2.0]]])
    weight = double([[0.5], [2.0]])
    # (0.5 * 2 - 2 * 2) / 2 and (0 - 2 * 1) / 2
    np.testing.assert_allclose(conservative_gaps(maxima, q, weight), [-1.5, -1.0], rtol=1e-12)


def normal(*shape: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape)


def draw_noise() -> ConservativeNoise:
    uniform = np.random.default_rng(4).random((3, 8, 2))
    parts = normal(8, 2, seed=1), uniform, normal(24, 2, seed=2), normal(24, 2, seed=3)
    return ConservativeNoise(*map(double, parts))


@pytest.mark.parametrize("backup", [False, True])
def test_the_loss_of_the_critics_is_that_of_the_paper(backup: bool):
    agent, rows = in_double(cql(conservative_weight=0.7, backup_entropy=backup))
    noise, alpha = draw_noise(), 0.3
    result = agent.critic_loss(rows, noise, torch.tensor(alpha, dtype=torch.float64))
    obs, next_obs, action = (column.numpy() for column in (rows.obs, rows.next_obs, rows.action))
    weight = rows.weight.numpy()[:, 0]
    next_action, log_prob = sampled(agent.actor, next_obs, noise.next_action.numpy())
    value = smallest(agent.critics.target, next_obs, next_action) - backup * alpha * log_prob
    y = rows.reward.numpy()[:, 0] + rows.discount.numpy()[:, 0] * value
    expected, gaps = 0.0, []
    for member in range(2):
        q = critic(agent.critics.online, member, obs, action)
        total = np.zeros(8)
        for n in range(3):
            part = slice(8 * n, 8 * n + 8)
            action_here, log_here = sampled(agent.actor, obs, noise.obs_action.numpy()[part])
            action_there, log_there = sampled(
                agent.actor, next_obs, noise.next_obs_action.numpy()[part]
            )
            uniform_action = 2 * noise.uniform.numpy()[n] - 1
            total += np.exp(critic(agent.critics.online, member, obs, uniform_action)) / 0.25
            total += np.exp(critic(agent.critics.online, member, obs, action_here) - log_here)
            total += np.exp(critic(agent.critics.online, member, obs, action_there) - log_there)
        gaps.append((weight * (np.log(total / 9) - q)).mean())
        expected += 0.5 * (weight * (q - y) ** 2).mean() + 0.7 * gaps[-1]
    assert result.loss.item() == pytest.approx(expected, rel=1e-6)
    assert result.metrics["conservative_gap"].item() == pytest.approx(np.mean(gaps), rel=1e-6)
    assert result.metrics["conservative_weight"].item() == pytest.approx(0.7, rel=1e-6)


def test_gradients_are_slopes():
    agent, rows = in_double(cql(activation="tanh", hidden=[5]))
    critic_noise, alpha = draw_noise(), torch.tensor(0.3, dtype=torch.float64)
    parameters = list(agent.critics.online.parameters())
    assert_slopes(lambda: agent.critic_loss(rows, critic_noise, alpha).loss, parameters)
    actor_noise = double(normal(8, 2, seed=5))
    parameters = list(agent.actor.parameters())
    assert_slopes(lambda: agent.actor_loss(rows, actor_noise, alpha).loss, parameters)


@pytest.mark.parametrize(("gap", "direction"), [(1000.0, -1), (-1000.0, 1)])
def test_the_weight_grows_where_the_gap_is_too_wide_and_falls_where_it_is_not(gap, direction):
    agent = cql(conservative_gap=gap, conservative_weight=2.0, learning_rate=0.01)
    weights = [float(agent.update(batch(i)).metrics["conservative_weight"]) for i in range(20)]
    assert weights[0] == pytest.approx(2)
    assert (np.sign(np.diff(weights)) == direction).all()
    assert weights[-1] == pytest.approx(2 * np.exp(direction * 0.01 * 19), rel=1e-4)


def test_a_weight_without_a_gap_stays_as_it_is():
    agent = cql(conservative_weight=2.0)
    for i in range(5):
        weight = float(agent.update(batch(i)).metrics["conservative_weight"])
        assert weight == pytest.approx(2)
    assert agent.state_dict()["conservative"] == {}


@pytest.mark.parametrize(("old", "new"), [(0.5, None), (None, 0.5)])
def test_a_weight_that_one_of_two_runs_learned_is_that_of_the_settings(
    old: float | None, new: float | None
):
    before = cql(1, conservative_gap=old, conservative_weight=3.0)
    after = cql(2, conservative_gap=new, conservative_weight=2.0)
    before.update(batch(0))
    after.load_weights(before.state_dict())
    assert after.conservative().item() == pytest.approx(2)
    assert torch.equal(after.critics.online.mlp.weights[0], before.critics.online.mlp.weights[0])
    match = r"saved state does not fit agent=cql: agent\.conservative_gap: "
    with pytest.raises(CheckpointError, match=match):
        after.load_state_dict(before.state_dict())


def test_soft_actor_critic_is_where_a_conservative_one_may_begin():
    before, after = sac(1), cql(2, conservative_weight=2.0, conservative_gap=1.0)
    after.load_weights(before.state_dict())
    assert after.conservative().item() == pytest.approx(2)
    assert torch.equal(after.critics.online.mlp.weights[0], before.critics.online.mlp.weights[0])


def line_env() -> EnvSpec:
    """An environment whose observations and actions are single numbers."""
    interval = box((1,), low=-1)
    return EnvSpec(id="Line-v0", observation=interval, action=interval, max_episode_steps=None)


def line_data(low: float, high: float) -> Batch:
    """A data set with one state, in which action a has reward a and ends the episode."""
    action = np.linspace(low, high, 64, dtype=np.float32)
    nothing = np.zeros((64, 1))
    return data_set(nothing, action[:, None], action, 0, nothing)


def values(agent: Cql, actions: Any) -> np.ndarray:
    with torch.no_grad():
        action = torch.tensor(actions, dtype=torch.float32)[:, None]
        return agent.critics.online(torch.zeros(len(action), 1), action).mean(dim=0)[:, 0].numpy()


def conservative_values(grid: np.ndarray, weight: float) -> np.ndarray:
    """Values that minimise the loss for data uniform on [-1, 1] (equation 4 with gradient 0).

    Q(a) = r(a) - weight * (softmax of Q at a / data density at a - 1)
    """
    q = grid.copy()
    for _ in range(500):
        share = np.exp(q) / (np.exp(q).mean() * 2)  # integrates to 1 over [-1, 1]
        q = 0.5 * q + 0.5 * (grid - weight * (share / 0.5 - 1))
    return q


@pytest.mark.slow
def test_values_are_those_that_the_paper_derives():
    settings = {"hidden": [32], "activation": "tanh", "learning_rate": 5e-3}
    # High entropy keeps the actor broad, so that importance sampling covers all actions.
    soft = {"ent_coef": 1.0, "conservative_weight": 0.5, "sampled_actions": 10}
    agent = cql(env=line_env(), **settings, **soft)
    rows = line_data(-1, 1)
    for _ in range(500):
        agent.update(rows)
    grid = np.linspace(-1, 1, 201)
    expected = conservative_values(grid, 0.5)
    assert abs(expected - grid).max() > 0.2
    np.testing.assert_allclose(values(agent, grid)[::20], expected[::20], atol=0.05)


def test_actions_that_the_data_does_not_show_are_valued_lower():
    """Extrapolation would make action 0.9 the best, but the actions in the data end at 0.3."""
    settings = {"hidden": [32], "learning_rate": 5e-3, "sampled_actions": 4}
    rows, learned = line_data(-0.3, 0.3), {}
    for weight in (0.0, 1.0):
        agent = cql(env=line_env(), **settings, conservative_weight=weight)
        for _ in range(200):
            agent.update(rows)
        learned[weight] = values(agent, [0.3, 0.9])
    assert learned[0.0][1] > learned[0.0][0] + 0.2
    assert learned[1.0][1] < learned[1.0][0] - 0.5
