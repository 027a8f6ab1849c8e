"""Acting with a Gaussian that is cut to the bounds."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
import torch
from continuous import HALF, LOW, MIDDLE, batch, spec
from states import reread, same

from border_cli.agent.awac import Awac
from border_cli.agent.config import AwacConfig
from border_cli.agent.continuous_policies import ClippedGaussianPolicy
from border_cli.core.errors import ConfigError
from border_cli.core.types import Snapshot


def agent() -> Awac:
    return Awac(AwacConfig(hidden=[8, 6], batch_size=8), spec=spec(), device="cpu", seed=1)


def policy(seed: int = 0, exploration: float | None = None) -> Any:
    return agent().policy_factory(np.random.default_rng(seed), exploration)


def snapshot(x: list[float], log_std: list[float], *, warm_up: bool = False) -> Snapshot:
    """Weights with this output for every observation."""
    arrays = {
        "network.mlp.layers.0.weight": np.zeros((2, 3), np.float32),
        "network.mlp.layers.0.bias": np.array(x, np.float32),
        "network.log_std": np.array(log_std, np.float32),
    }
    return Snapshot(opt_steps=0, env_steps=0, warm_up=warm_up, arrays=arrays)


OBS = np.zeros((20_000, 3), np.float32)


def test_numpy_acts_as_torch_computes():
    made, acting = agent(), policy()
    for seed in range(5):
        made.update(batch(seed))
    acting.load_snapshot(made.snapshot())
    obs = batch(7).obs
    with torch.no_grad():
        mean = made.actor(torch.from_numpy(obs)).numpy()
    np.testing.assert_allclose(acting.act(obs, explore=False), MIDDLE + HALF * mean, rtol=1e-5)
    assert acting.act(obs, explore=False).dtype == np.float32


def test_samples_have_the_learned_mean_and_deviation_in_the_units_of_the_environment():
    acting = policy()
    acting.load_snapshot(snapshot([0.2, -0.4], [np.log(0.1), np.log(0.05)]))
    action = acting.act(OBS, explore=True)
    np.testing.assert_allclose(action.mean(0), MIDDLE + HALF * np.tanh([0.2, -0.4]), atol=0.01)
    np.testing.assert_allclose(action.std(0), HALF * [0.1, 0.05], rtol=0.03)


def test_samples_beyond_the_bounds_are_the_bounds():
    acting = policy()
    acting.load_snapshot(snapshot([-4.0, 0.0], [0.0, -5.0]))
    action = acting.act(OBS, explore=True)
    assert (action[:, 0] == LOW[0]).mean() == pytest.approx(0.5, abs=0.02)
    assert (action >= LOW).all()


def test_in_warm_up_any_action_is_as_likely():
    acting = policy()
    acting.load_snapshot(snapshot([3.0, 3.0], [-5.0, -5.0], warm_up=True))
    action = acting.act(OBS, explore=True)
    np.testing.assert_allclose(action.mean(0), MIDDLE, atol=0.05)


def test_a_constant_exploration_is_refused():
    with pytest.raises(
        ConfigError, match=r"actor_manager.exploration must be null with agent=awac"
    ):
        policy(exploration=0.3)


def test_a_restored_policy_explores_as_the_one_that_went_on():
    one, other = policy(1), policy(2)
    for each in (one, other):
        each.load_snapshot(snapshot([0.0, 0.0], [0.0, 0.0]))
    one.act(OBS, explore=True)
    other.load_state_dict(reread(one.state_dict()))
    assert same(one.act(OBS, explore=True), other.act(OBS, explore=True))


def test_the_factory_crosses_to_other_processes():
    made = pickle.loads(pickle.dumps(agent().policy_factory))
    assert isinstance(made(np.random.default_rng(0), None), ClippedGaussianPolicy)
