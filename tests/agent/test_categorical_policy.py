"""Actions drawn from logits."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from states import reread, same

from border_cli.agent.policies import CategoricalPolicy
from border_cli.core.errors import ConfigError
from border_cli.core.spaces import BoxSpace
from border_cli.core.types import Snapshot
from border_cli.nn.architecture import Architecture
from border_cli.nn.numpy_network import NumpyNetwork

ONE_NUMBER = BoxSpace(shape=(1,), dtype="float32", low=np.zeros(1), high=np.ones(1))
OBS = np.ones((20_000, 1), np.float32)
LOGITS = [0.0, np.log(2.0), np.log(5.0)]  # 1/8, 2/8 and 5/8


def policy(exploration: float | None = None, seed: int = 0) -> CategoricalPolicy:
    acting = CategoricalPolicy(
        np.random.default_rng(seed),
        exploration,
        network=partial(NumpyNetwork, Architecture(ONE_NUMBER, hidden=())),
        num_actions=3,
        agent="bc",
    )
    acting.load_snapshot(snapshot())
    return acting


def snapshot(warm_up: bool = False) -> Snapshot:
    arrays = {
        "network.mlp.layers.0.weight": np.zeros((3, 1), np.float32),
        "network.mlp.layers.0.bias": np.array(LOGITS, np.float32),
    }
    return Snapshot(opt_steps=0, env_steps=0, warm_up=warm_up, arrays=arrays)


def shares(acting: CategoricalPolicy, *, explore: bool) -> list[float]:
    action = acting.act(OBS, explore=explore)
    assert action.dtype == np.int64
    return (np.bincount(action, minlength=3) / len(action)).tolist()


def test_exploring_it_takes_each_action_as_often_as_its_logit_says():
    assert shares(policy(), explore=True) == pytest.approx([0.125, 0.25, 0.625], abs=0.01)


def test_evaluated_it_takes_the_most_likely_one():
    assert shares(policy(), explore=False) == [0, 0, 1]


def test_in_warm_up_it_takes_any():
    acting = policy()
    acting.load_snapshot(snapshot(warm_up=True))
    assert shares(acting, explore=True) == pytest.approx([1 / 3] * 3, abs=0.01)
    assert shares(acting, explore=False) == [0, 0, 1]


def test_a_constant_of_exploration_is_refused():
    with pytest.raises(
        ConfigError, match=r"actor_manager\.exploration must be null with agent=bc.*got 0\.3"
    ):
        policy(0.3)


def test_a_restored_policy_draws_as_the_one_that_went_on():
    acting, restored = policy(seed=1), policy(seed=2)
    acting.act(OBS[:77], explore=True)
    restored.load_state_dict(reread(acting.state_dict()))
    assert same(restored.act(OBS[:99], explore=True), acting.act(OBS[:99], explore=True))
