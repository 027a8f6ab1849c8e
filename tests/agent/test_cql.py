"""Conservative Q-learning: its penalty by integrals and by hand, and what it makes of values."""

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
    """Of exp(a) over -1 … 1: e - 1/e, whatever density the actions were drawn by."""
    expected = np.log(np.e - 1 / np.e)
    draw = torch.Generator().manual_seed(0)
    even = 2 * torch.rand(200_000, generator=draw, dtype=torch.float64) - 1
    # Density (1 + a) / 2, by the inverse of its distribution function (1 + a)^2 / 4.
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


def drawn() -> ConservativeNoise:
    uniform = np.random.default_rng(4).random((3, 8, 2))
    parts = normal(8, 2, seed=1), uniform, normal(24, 2, seed=2), normal(24, 2, seed=3)
    return ConservativeNoise(*map(double, parts))


@pytest.mark.parametrize("backup", [False, True])
def test_the_loss_of_the_critics_is_that_of_the_paper(backup: bool):
    agent, rows = in_double(cql(conservative_weight=0.7, backup_entropy=backup))
    given, alpha = drawn(), 0.3
    found = agent.critic_loss(rows, given, torch.tensor(alpha, dtype=torch.float64))
    obs, next_obs, action = (each.numpy() for each in (rows.obs, rows.next_obs, rows.action))
    weight = rows.weight.numpy()[:, 0]
    next_action, log = sampled(agent.actor, next_obs, given.next_action.numpy())
    value = smallest(agent.critics.target, next_obs, next_action) - backup * alpha * log
    y = rows.reward.numpy()[:, 0] + rows.discount.numpy()[:, 0] * value
    expected, gaps = 0.0, []
    for member in range(2):
        q = critic(agent.critics.online, member, obs, action)
        total = np.zeros(8)
        for n in range(3):
            part = slice(8 * n, 8 * n + 8)
            here, log_here = sampled(agent.actor, obs, given.here.numpy()[part])
            there, log_there = sampled(agent.actor, next_obs, given.there.numpy()[part])
            anywhere = 2 * given.uniform.numpy()[n] - 1
            total += np.exp(critic(agent.critics.online, member, obs, anywhere)) / 0.25
            total += np.exp(critic(agent.critics.online, member, obs, here) - log_here)
            total += np.exp(critic(agent.critics.online, member, obs, there) - log_there)
        gaps.append((weight * (np.log(total / 9) - q)).mean())
        expected += 0.5 * (weight * (q - y) ** 2).mean() + 0.7 * gaps[-1]
    assert found.loss.item() == pytest.approx(expected, rel=1e-6)
    assert found.metrics["conservative_gap"].item() == pytest.approx(np.mean(gaps), rel=1e-6)
    assert found.metrics["conservative_weight"].item() == pytest.approx(0.7, rel=1e-6)


def test_gradients_are_slopes():
    agent, rows = in_double(cql(activation="tanh", hidden=[5]))
    given, alpha = drawn(), torch.tensor(0.3, dtype=torch.float64)
    parameters = list(agent.critics.online.parameters())
    assert_slopes(lambda: agent.critic_loss(rows, given, alpha).loss, parameters)
    noise = double(normal(8, 2, seed=5))
    parameters = list(agent.actor.parameters())
    assert_slopes(lambda: agent.actor_loss(rows, noise, alpha).loss, parameters)


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


def line() -> EnvSpec:
    """One number is seen, one is done."""
    one = box((1,), low=-1)
    return EnvSpec(id="Line-v0", observation=one, action=one, max_episode_steps=None)


def on_line(low: float, high: float) -> Batch:
    """One state, whose actions bring what they are, and end it."""
    action = np.linspace(low, high, 64, dtype=np.float32)
    nothing = np.zeros((64, 1))
    return data_set(nothing, action[:, None], action, 0, nothing)


def values(agent: Cql, actions: Any) -> np.ndarray:
    with torch.no_grad():
        action = torch.tensor(actions, dtype=torch.float32)[:, None]
        return agent.critics.online(torch.zeros(len(action), 1), action).mean(dim=0)[:, 0].numpy()


def conservative_values(grid: np.ndarray, weight: float) -> np.ndarray:
    """The minimum of the loss where data lies evenly in -1 … 1 (equation 4, with its gradient 0).

    Q(a) = r(a) - weight * (softmax of Q at a / density of the data at a - 1)
    """
    q = grid.copy()
    for _ in range(500):
        share = np.exp(q) / (np.exp(q).mean() * 2)  # integrates to 1 over -1 … 1
        q = 0.5 * q + 0.5 * (grid - weight * (share / 0.5 - 1))
    return q


@pytest.mark.slow
def test_values_are_those_that_the_paper_derives():
    settings = {"hidden": [32], "activation": "tanh", "learning_rate": 5e-3}
    # Much entropy keeps the actor broad, as importance sampling of everything needs it.
    soft = {"ent_coef": 1.0, "conservative_weight": 0.5, "sampled_actions": 10}
    agent = cql(env=line(), **settings, **soft)
    rows = on_line(-1, 1)
    for _ in range(500):
        agent.update(rows)
    grid = np.linspace(-1, 1, 201)
    expected = conservative_values(grid, 0.5)
    assert abs(expected - grid).max() > 0.2
    np.testing.assert_allclose(values(agent, grid)[::20], expected[::20], atol=0.05)


def test_actions_that_the_data_does_not_show_are_valued_lower():
    """Extrapolated, 0.9 is worth more than anything in the data, which ends at 0.3."""
    settings = {"hidden": [32], "learning_rate": 5e-3, "sampled_actions": 4}
    rows, found = on_line(-0.3, 0.3), {}
    for weight in (0.0, 1.0):
        agent = cql(env=line(), **settings, conservative_weight=weight)
        for _ in range(200):
            agent.update(rows)
        found[weight] = values(agent, [0.3, 0.9])
    assert found[0.0][1] > found[0.0][0] + 0.2
    assert found[1.0][1] < found[1.0][0] - 0.5
