"""AWAC, IQL and CQL: what an update changes, what is refused, what comes out on small problems."""

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

each_agent = pytest.mark.parametrize(("make", "actions"), AGENTS.values(), ids=AGENTS)


@each_agent
def test_rows_without_weight_say_nothing(make, actions):
    agent, other = make(), make()
    one, another = (batch(1, actions=actions) for _ in range(2))
    one.weight[3] = another.weight[3] = 0
    another.obs[3], another.reward[3] = 0.5, -70.0
    agent.update(one)
    other.update(another)
    for name, array in agent.snapshot().arrays.items():
        np.testing.assert_allclose(array, other.snapshot().arrays[name], rtol=1e-5, atol=1e-6)


@each_agent
def test_priorities_are_the_size_of_td_errors(make, actions):
    """At an end with a reward of 1000 nothing else counts."""
    agent, given = make(), batch(0, actions=actions)
    given.discount[2], given.reward[2] = 0, 1000
    assert agent.update(given).td_error()[2] == pytest.approx(1000, rel=0.01)


@each_agent
def test_target_critics_follow(make, actions):
    agent = make(tau=0.25)
    before = {name: each.clone() for name, each in agent.critics.target.state_dict().items()}
    agent.update(batch(0, actions=actions))
    online = agent.critics.online.state_dict()
    for name, each in agent.critics.target.state_dict().items():
        expected = 0.75 * before[name] + 0.25 * online[name]
        torch.testing.assert_close(each, expected, rtol=1e-5, atol=1e-7)


def test_cql_refuses_counted_actions():
    env = EnvSpec(id="X-v0", observation=reals(1), action=DiscreteSpace(2), max_episode_steps=None)
    said = r"agent=cql needs a Box action space.*Discrete\(2\).* discrete_cql, discrete_sac, dqn"
    with pytest.raises(ConfigError, match=said):
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
def test_settings_that_cannot_be_are_refused(make: Callable[[], Any], match: str):
    with pytest.raises(ConfigError, match=match):
        make()


def chain() -> Batch:
    """Three states in a row, one-hot. Action 0 goes on, for 1 behind the last; action 1 ends it.

    Ending brings 0.2, 0.5 and 0.1. Nobody ever took action 2.
    """
    here, end = np.eye(3), np.zeros(3)
    go_on = [(here[0], 0, 0.0, 0.9, here[1]), (here[1], 0, 0.0, 0.9, here[2])]
    go_on += [(here[2], 0, 1.0, 0.0, end)]
    ending = [(here[i], 1, reward, 0.0, end) for i, reward in enumerate((0.2, 0.5, 0.1))]
    return data_set(*zip(*go_on, *ending, strict=True))


@pytest.mark.parametrize("expectile", sampled([0.7, 0.5, 0.95], every=3))
def test_iql_finds_the_values_of_a_chain(expectile):
    """V(s) = tau max + (1 - tau) min of the two values, both as often in the data."""
    agent = counted_iql(hidden=[32], learning_rate=5e-3, tau=0.3, expectile=expectile)
    given = chain()
    for _ in range(1_000):
        agent.update(given)
    ends, v, following = [0.2, 0.5, 0.1], [0.0, 0.0, 0.0], 1.0
    for i in (2, 1, 0):
        high, low = max(following, ends[i]), min(following, ends[i])
        v[i] = expectile * high + (1 - expectile) * low
        following = 0.9 * v[i]
    with torch.no_grad():
        found = agent.value(torch.eye(3))[:, 0]
        q = agent.critics.online(torch.eye(3), torch.eye(3)[[0, 0, 0]])[..., 0]
    np.testing.assert_allclose(found, v, atol=0.01)
    np.testing.assert_allclose(q, [[0.9 * v[1], 0.9 * v[2], 1.0]] * 2, atol=0.01)


BANDIT = data_set(np.ones((64, 3)), [0, 1] * 32, [0.0, 0.5] * 32, 0.0, np.zeros((64, 3)))


@pytest.mark.parametrize("softmax", sampled([False, True], every=2), ids=["exp", "softmax"])
@pytest.mark.parametrize("make", sampled([counted_awac, counted_iql], every=2), ids=["awac", "iql"])
@pytest.mark.parametrize("inv_lambda", [4.0, 0.0])
def test_better_actions_are_cloned_by_the_exponential_of_their_advantage(make, softmax, inv_lambda):
    """Of two actions, as often in the data, whose values differ by 0.5."""
    agent = make(hidden=[16], inv_lambda=inv_lambda, adv_softmax=softmax, learning_rate=5e-3)
    for _ in range(800):
        agent.update(BANDIT)
    with torch.no_grad():
        shares = torch.softmax(agent.actor(torch.ones(1, 3)), dim=1)[0]
    assert float(shares[1]) == pytest.approx(1 / (1 + np.exp(-inv_lambda / 2)), abs=0.01)


def bumps() -> Batch:
    """Actions around two places, of which the second is worth 1 more."""
    rng = np.random.default_rng(0)
    place = np.repeat([[-0.5, 0.2], [0.5, -0.4]], 32, axis=0)
    action = MIDDLE + HALF * (place + 0.05 * rng.standard_normal((64, 2)))
    reward = np.repeat([0.0, 1.0], 32)
    zeros = np.zeros((64, 3))
    return data_set(zeros + 1, action.astype(np.float32), reward, 0.0, zeros)


@pytest.mark.parametrize("make", sampled([awac, iql], every=2), ids=["awac", "iql"])
def test_a_gaussian_settles_on_the_better_of_two_places(make):
    """Rows count 1 : exp(8), so mean and deviation are those of the second place alone."""
    settings = {"hidden": [32], "learning_rate": 1e-2}
    agent, given = make(**settings, inv_lambda=8.0, exp_adv_max=10.0), bumps()
    for _ in range(600):
        agent.update(given)
    with torch.no_grad():
        mean = agent.actor(torch.ones(1, 3))[0].numpy()
    action = (given.action[32:] - MIDDLE) / HALF
    np.testing.assert_allclose(mean, action.mean(0), atol=0.02)
    std = np.exp(agent.snapshot().arrays["network.log_std"])
    np.testing.assert_allclose(std, action.std(0), atol=0.02)


def test_actions_at_the_bounds_leave_everything_finite():
    for make in (awac, iql, cql):
        agent, given = make(), batch(0)
        given.action[:4], given.action[4:] = LOW, LOW + 2 * HALF
        for _ in range(20):
            agent.update(given)
        assert agent.first_not_finite() is None


@pytest.mark.parametrize("make", [awac, iql], ids=["awac", "iql"])
def test_data_without_any_noise_leaves_some_deviation(make):
    """The likelihood of what is always the same would grow for ever as the deviation shrinks."""
    agent, given = make(learning_rate=0.05, inv_lambda=0.0), batch(0)
    given.obs[:], given.action[:] = 0, MIDDLE
    for _ in range(250):
        agent.update(given)
    np.testing.assert_array_equal(agent.snapshot().arrays["network.log_std"], -5)
