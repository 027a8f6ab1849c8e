"""Exploration that goes on to the bit."""

from __future__ import annotations

import copy
from functools import partial
from typing import Any

import numpy as np
import pytest
from states import reread, same

from border_cli.agent.config import DqnConfig
from border_cli.agent.policies import QPolicy, RandomPolicy
from border_cli.core.errors import CheckpointError
from border_cli.core.interfaces import Policy
from border_cli.core.spaces import BoxSpace, DiscreteSpace, LeafSpace, MultiDiscreteSpace
from border_cli.core.types import Snapshot
from border_cli.nn.architecture import Architecture
from border_cli.nn.numpy_network import NumpyNetwork

BOX = BoxSpace(
    shape=(2,),
    dtype="float32",
    low=np.array([-1, -np.inf], np.float32),
    high=np.array([2, np.inf], np.float32),
)

LINEAR = partial(NumpyNetwork, Architecture(BOX, hidden=()))


def q_policy(exploration: str, seed: int, warm_up: bool) -> QPolicy:
    settings: dict[str, Any] = {"temperature": 2.0} if exploration == "softmax" else {}
    config = DqnConfig(exploration=exploration, **settings)  # type: ignore[arg-type]
    policy = QPolicy(config, np.random.default_rng(seed), 0.6, network=LINEAR, num_actions=3)
    rng = np.random.default_rng(9)
    arrays = {
        "network.mlp.layers.0.weight": rng.normal(size=(3, 2)).astype(np.float32),
        "network.mlp.layers.0.bias": rng.normal(size=3).astype(np.float32),
    }
    policy.load_snapshot(Snapshot(opt_steps=0, env_steps=0, warm_up=warm_up, arrays=arrays))
    return policy


def act(policy: Policy, steps: int, rows: int) -> list[Any]:
    rng = np.random.default_rng(4)
    obs = [rng.normal(size=(rows, 2)).astype(np.float32) for _ in range(steps)]
    return [policy.act(each, explore=True) for each in obs]


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("warm_up", [False, True], ids=["", "warm-up"])
@pytest.mark.parametrize("exploration", ["epsilon_greedy", "softmax"])
def test_a_restored_q_policy_explores_as_the_one_that_went_on(exploration, warm_up, rows):
    policy = q_policy(exploration, 1, warm_up)
    for steps in (0, 3, 500, 1):  # the draws of a block are used up in between
        taken = act(policy, steps, rows)
        state = policy.state_dict()
        before = copy.deepcopy(state)
        restored = q_policy(exploration, 2, warm_up)
        act(restored, 5, rows)
        restored.load_state_dict(reread(state))
        expected = act(policy, 800, rows)
        assert same(act(restored, 800, rows), expected)
        assert same(state, before)
        assert len(np.unique(np.concatenate(expected))) == 3
        assert not any(np.shares_memory(one, expected[0]) for one in taken)


def test_warm_up_and_its_end_go_on_from_one_state():
    """Warm-up draws from the generator itself, between two blocks of the other exploration."""
    policy = q_policy("epsilon_greedy", 1, warm_up=False)
    act(policy, 100, 1)
    arrays = policy.state_dict()
    for warm_up in (True, False):
        one, other = (q_policy("epsilon_greedy", seed, warm_up) for seed in (5, 6))
        one.load_state_dict(arrays)
        other.load_state_dict(reread(arrays))
        assert same(act(one, 1500, 1), act(other, 1500, 1))
        arrays = one.state_dict()


@pytest.mark.parametrize(
    "space", [DiscreteSpace(5), MultiDiscreteSpace((2, 70)), BOX], ids=["number", "numbers", "box"]
)
def test_a_restored_random_policy_draws_as_the_one_that_went_on(space: LeafSpace):
    policy = RandomPolicy(space, np.random.default_rng(1))
    for steps in (0, 1, 77):  # an odd number of 32-bit draws leaves half a word behind
        act(policy, steps, 1)
        restored = RandomPolicy(space, np.random.default_rng(2))
        restored.load_state_dict(reread(policy.state_dict()))
        assert same(act(restored, 50, 1), act(policy, 50, 1))


@pytest.mark.parametrize(
    "make",
    [lambda: q_policy("softmax", 1, False), lambda: RandomPolicy(BOX, np.random.default_rng(0))],
)
def test_a_generator_of_another_kind_is_refused(make):
    state = {**make().state_dict(), "generator": np.random.MT19937(0).state}
    with pytest.raises(CheckpointError, match="state of a generator is invalid"):
        make().load_state_dict(state)
