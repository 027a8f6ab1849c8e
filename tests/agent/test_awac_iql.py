"""AWAC, IQL and CQL: effects of an update, rejected settings, and results on small problems."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from border_cli.agent.config import AwacConfig, CqlConfig, IqlConfig
from border_cli.core.spaces import DiscreteSpace, EnvSpec
from border_cli.core.types import Batch
from border_cli.errors import ConfigError
from tests.support.case_sampling import sampled
from tests.support.continuous_env import HALF, LOW, MIDDLE, batch, data_set
from tests.support.offline_agents import AGENTS, awac, counted_awac, counted_iql, cql, iql
from tests.support.spaces import reals

all_agents = pytest.mark.parametrize(("make", "actions"), AGENTS.values(), ids=AGENTS)


@all_agents
def test_rows_with_weight_0_do_not_affect_an_update(make, actions):
    agent, other = make(), make()
    first, second = (batch(1, actions=actions) for _ in range(2))
    first.weight[3] = second.weight[3] = 0
    second.obs[3], second.reward[3] = 0.5, -70.0
    agent.update(first)
    other.update(second)
    for name, array in agent.snapshot().arrays.items():
        np.testing.assert_allclose(array, other.snapshot().arrays[name], rtol=1e-5, atol=1e-6)


@all_agents
def test_priorities_are_the_size_of_td_errors(make, actions):
    """A terminal transition with reward 1000 has a TD error of about 1000."""
    agent, rows = make(), batch(0, actions=actions)
    rows.discount[2], rows.reward[2] = 0, 1000
    assert agent.update(rows).td_error()[2] == pytest.approx(1000, rel=0.01)


@all_agents
def test_target_critics_follow(make, actions):
    agent = make(tau=0.25)
    before = {
        name: parameter.clone() for name, parameter in agent.critics.target.state_dict().items()
    }
    agent.update(batch(0, actions=actions))
    online = agent.critics.online.state_dict()
    for name, parameter in agent.critics.target.state_dict().items():
        expected = 0.75 * before[name] + 0.25 * online[name]
        torch.testing.assert_close(parameter, expected, rtol=1e-5, atol=1e-7)


def test_cql_refuses_counted_actions():
    env = EnvSpec(id="X-v0", observation=reals(1), action=DiscreteSpace(2), max_episode_steps=None)
    match = r"agent=cql needs a Box action space.*Discrete\(2\).* discrete_cql, discrete_sac, dqn"
    with pytest.raises(ConfigError, match=match):
        cql(env=env)


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (
            lambda: AwacConfig(adv_softmax=True, exp_adv_max=50.0),
            "agent.exp_adv_max needs",
        ),
        (lambda: IqlConfig(expectile=1.0), "agent.expectile must be below 1"),
        (
            lambda: CqlConfig(conservative_gap=1.0, conservative_weight=0.0),
            "agent.conservative_weight must be above 0 with agent.conservative_gap",
        ),
    ],
)
def test_invalid_settings_are_refused(make: Callable[[], Any], match: str):
    with pytest.raises(ConfigError, match=match):
        make()


def chain() -> Batch:
    """Three states in a row, one-hot. Action 0 moves on, action 1 ends the episode.

    Moving on from the last state pays 1 and ends the episode. Action 1 pays 0.2, 0.5 and 0.1 in the
    three states. Action 2 does not occur in the data.
    """
    states, end = np.eye(3), np.zeros(3)
    moves = [(states[0], 0, 0.0, 0.9, states[1]), (states[1], 0, 0.0, 0.9, states[2])]
    moves += [(states[2], 0, 1.0, 0.0, end)]
    endings = [(states[i], 1, reward, 0.0, end) for i, reward in enumerate((0.2, 0.5, 0.1))]
    return data_set(*zip(*moves, *endings, strict=True))


@pytest.mark.parametrize("expectile", sampled([0.7, 0.5, 0.95], every=3))
def test_iql_finds_the_values_of_a_chain(expectile):
    """V(s) = tau max + (1 - tau) min of the two action values, which are equally frequent."""
    agent = counted_iql(hidden=[32], learning_rate=1e-3, tau=0.3, expectile=expectile)
    rows = chain()
    for _ in range(1_200):
        agent.update(rows)
    ends, v, next_value = [0.2, 0.5, 0.1], [0.0, 0.0, 0.0], 1.0
    for i in (2, 1, 0):
        high, low = max(next_value, ends[i]), min(next_value, ends[i])
        v[i] = expectile * high + (1 - expectile) * low
        next_value = 0.9 * v[i]
    with torch.no_grad():
        learned_v = agent.value(torch.eye(3))[:, 0]
        q = agent.critics.online(torch.eye(3), torch.eye(3)[[0, 0, 0]])[..., 0]
    np.testing.assert_allclose(learned_v, v, atol=0.01)
    np.testing.assert_allclose(q, [[0.9 * v[1], 0.9 * v[2], 1.0]] * 2, atol=0.01)


BANDIT = data_set(np.ones((64, 3)), [0, 1] * 32, [0.0, 0.5] * 32, 0.0, np.zeros((64, 3)))


@pytest.mark.parametrize("softmax", sampled([False, True], every=2, ids=["exp", "softmax"]))
@pytest.mark.parametrize("make", sampled([counted_awac, counted_iql], every=2, ids=["awac", "iql"]))
@pytest.mark.parametrize("inv_lambda", [4.0, 0.0])
def test_better_actions_are_cloned_by_the_exponential_of_their_advantage(make, softmax, inv_lambda):
    """The data has two equally frequent actions, whose values differ by 0.5."""
    agent = make(hidden=[16], inv_lambda=inv_lambda, adv_softmax=softmax, learning_rate=5e-3)
    for _ in range(800):
        agent.update(BANDIT)
    with torch.no_grad():
        shares = torch.softmax(agent.actor(torch.ones(1, 3)), dim=1)[0]
    assert float(shares[1]) == pytest.approx(1 / (1 + np.exp(-inv_lambda / 2)), abs=0.01)


def two_clusters() -> Batch:
    """Actions scattered around two centers; those around the second are worth 1 more."""
    rng = np.random.default_rng(0)
    center = np.repeat([[-0.5, 0.2], [0.5, -0.4]], 32, axis=0)
    action = MIDDLE + HALF * (center + 0.05 * rng.standard_normal((64, 2)))
    reward = np.repeat([0.0, 1.0], 32)
    zeros = np.zeros((64, 3))
    return data_set(zeros + 1, action.astype(np.float32), reward, 0.0, zeros)


@pytest.mark.parametrize("make", sampled([awac, iql], every=2, ids=["awac", "iql"]))
def test_a_gaussian_settles_on_the_better_of_two_places(make):
    """Rows are weighted 1 : exp(8), so mean and deviation are those of the second center alone."""
    settings = {"hidden": [32], "learning_rate": 1e-2}
    agent, rows = make(**settings, inv_lambda=8.0, exp_adv_max=10.0), two_clusters()
    for _ in range(600):
        agent.update(rows)
    with torch.no_grad():
        mean = agent.actor(torch.ones(1, 3))[0].numpy()
    action = (rows.action[32:] - MIDDLE) / HALF
    np.testing.assert_allclose(mean, action.mean(0), atol=0.02)
    std = np.exp(agent.snapshot().arrays["network.log_std"])
    np.testing.assert_allclose(std, action.std(0), atol=0.02)


def test_actions_at_the_bounds_leave_everything_finite():
    for make in (awac, iql, cql):
        agent, rows = make(), batch(0)
        rows.action[:4], rows.action[4:] = LOW, LOW + 2 * HALF
        for _ in range(20):
            agent.update(rows)
        assert agent.first_not_finite() is None


@pytest.mark.parametrize("make", [awac, iql], ids=["awac", "iql"])
def test_data_without_any_noise_leaves_some_deviation(make):
    """If all actions are equal, the likelihood grows without bound as the deviation shrinks."""
    agent, rows = make(learning_rate=0.05, inv_lambda=0.0), batch(0)
    rows.obs[:], rows.action[:] = 0, MIDDLE
    for _ in range(250):
        agent.update(rows)
    np.testing.assert_array_equal(agent.snapshot().arrays["network.log_std"], -5)
