"""Samples that explore, means that are evaluated, and the bounds of the environment."""

from __future__ import annotations

import pickle
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from continuous import HALF, LOW, MIDDLE, batch, spec
from soft_agents import KINDS, agent_of
from states import reread, same

from border_cli.agent.action_space import action_bounds
from border_cli.agent.continuous_policies import GaussianPolicy
from border_cli.core.errors import ConfigError
from border_cli.core.spaces import BoxSpace
from border_cli.core.types import Snapshot
from border_cli.nn.architecture import Architecture
from border_cli.nn.distributions import split
from border_cli.nn.numpy_network import NumpyNetwork

ONE_NUMBER = BoxSpace(shape=(1,), dtype="float32", low=np.zeros(1), high=np.ones(1))
OBS = np.ones((20_000, 1), np.float32)


def policy(seed: int = 0, exploration: float | None = None) -> GaussianPolicy:
    bounds = action_bounds(spec().action)
    assert bounds is not None
    look = Architecture(ONE_NUMBER, hidden=())
    rng = np.random.default_rng(seed)
    return GaussianPolicy(
        rng, exploration, network=partial(NumpyNetwork, look), bounds=bounds, agent="sac"
    )


def snapshot(outputs: list[float], warm_up: bool = False) -> Snapshot:
    """Weights with these outputs for every observation: two means, two log_stds."""
    arrays = {
        "network.mlp.layers.0.weight": np.zeros((4, 1), np.float32),
        "network.mlp.layers.0.bias": np.array(outputs, np.float32),
    }
    return Snapshot(opt_steps=0, env_steps=0, warm_up=warm_up, arrays=arrays)


def test_evaluation_takes_tanh_of_the_mean_within_the_bounds():
    acting = policy()
    for warm_up in (False, True):
        acting.load_snapshot(snapshot([0.5, -0.2, 1, 1], warm_up))
        expected = MIDDLE + HALF * np.tanh([0.5, -0.2])
        np.testing.assert_allclose(acting.act(OBS[:3], explore=False), [expected] * 3, rtol=1e-6)
    acting.load_snapshot(snapshot([-50, 50, 1, 1]))
    np.testing.assert_array_equal(acting.act(OBS[:1], explore=False), [[LOW[0], 6]])


def test_exploring_draws_from_the_distribution():
    acting = policy()
    acting.load_snapshot(snapshot([0.5, -0.2, np.log(0.3), np.log(0.8)]))
    action = acting.act(OBS, explore=True)
    assert action.dtype == np.float32
    before = np.arctanh(np.clip((action.astype(np.float64) - MIDDLE) / HALF, -0.999999, 0.999999))
    np.testing.assert_allclose(before.mean(axis=0), [0.5, -0.2], atol=0.02)
    np.testing.assert_allclose(before.std(axis=0), [0.3, 0.8], atol=0.02)
    assert abs(np.corrcoef(before.T)[0, 1]) < 0.03


def test_a_deviation_is_exponentiated_once_and_has_its_range():
    acting = policy()
    for log_std, std in ((2.0, np.exp(2)), (9.0, np.exp(2)), (-50.0, np.exp(-20))):
        acting.load_snapshot(snapshot([0, 0, log_std, log_std]))
        action = (acting.act(OBS, explore=True) - MIDDLE) / HALF
        inner = np.abs(np.arctanh(np.clip(action, -0.999, 0.999))) < 0.5
        # The share of a Gaussian within 0.5 of its mean.
        expected = torch.erf(torch.tensor(0.5 / std / 2**0.5)).item()
        assert inner.mean() == pytest.approx(expected, abs=0.01)


def test_in_warm_up_every_action_is_taken_equally_often():
    acting = policy()
    acting.load_snapshot(snapshot([9, 9, -9, -9], warm_up=True))
    action = (acting.act(OBS, explore=True) - MIDDLE) / HALF
    quartiles = np.quantile(action, [0, 0.25, 0.5, 0.75, 1])
    np.testing.assert_allclose(quartiles, [-1, -0.5, 0, 0.5, 1], atol=0.02)


def test_a_constant_of_exploration_is_refused():
    with pytest.raises(ConfigError, match=r"exploration must be null with agent=sac"):
        policy(exploration=0.1)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "settings", [{}, {"activation": "silu", "layer_norm": True, "critic_layer_norm": False}]
)
def test_the_policy_acts_as_the_actor_of_the_agent(kind: str, settings: dict[str, Any]):
    agent = agent_of(kind, **settings)
    for seed in range(5):
        agent.update(batch(seed))
    factory = pickle.loads(pickle.dumps(agent.policy_factory))
    acting = factory(np.random.default_rng(0), None)
    acting.load_snapshot(agent.snapshot())
    obs = batch(9).obs
    with torch.no_grad():
        mean, log_std = split(agent.actor(torch.from_numpy(obs)))
    wanted = MIDDLE + HALF * torch.tanh(mean).numpy()
    np.testing.assert_allclose(acting.act(obs, explore=False), wanted, rtol=1e-5, atol=1e-5)
    noise = np.random.default_rng(0).standard_normal((8, 2), np.float32)
    wanted = MIDDLE + HALF * np.tanh(mean.numpy() + log_std.exp().numpy() * noise)
    np.testing.assert_allclose(acting.act(obs, explore=True), wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("warm_up", [False, True])
def test_a_restored_policy_explores_as_the_one_that_went_on(warm_up: bool):
    acting, restored = policy(1), policy(2)
    for each in (acting, restored):
        each.load_snapshot(snapshot([0.1, 0.2, 0, 0], warm_up))
        each.act(OBS[:3], explore=True)
    restored.load_state_dict(reread(acting.state_dict()))
    drawn = [[each.act(OBS[:3], explore=True) for _ in range(9)] for each in (acting, restored)]
    assert same(*drawn)
