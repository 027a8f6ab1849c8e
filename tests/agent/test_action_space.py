"""Joint actions of multi-discrete spaces: numbering, masks, limits, learning and acting."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
import torch

from border_cli.agent.action_space import DiscreteActions
from border_cli.agent.config import DqnConfig, IqnConfig, QrdqnConfig
from border_cli.agent.dqn import Dqn, ValueAgent
from border_cli.agent.iqn import Iqn
from border_cli.agent.qrdqn import Qrdqn
from border_cli.core.spaces import DiscreteSpace, EnvSpec, LeafSpace, MultiDiscreteSpace
from border_cli.errors import ConfigError
from tests.support.continuous_env import batch
from tests.support.saved_states import same
from tests.support.spaces import reals

NVEC = (2, 3, 2)
JOINT = np.array(list(product(*map(range, NVEC))))  # [12, 3]
AGENTS: dict[str, Any] = {
    "dqn": (Dqn, DqnConfig, {}),
    "rainbow": (
        *(Dqn, DqnConfig),
        {"dueling": True, "num_atoms": 5, "noisy": True, "exploration": "greedy"},
    ),
    "c51": (Dqn, DqnConfig, {"dueling": True, "num_atoms": 5}),
    "conservative": (Dqn, DqnConfig, {"conservative_weight": 1.0}),
    "qrdqn": (Qrdqn, QrdqnConfig, {"num_quantiles": 5}),
    "iqn": (Iqn, IqnConfig, {}),
}


def value_agent(name: str, space: LeafSpace, **settings: Any) -> ValueAgent:
    kind, config, form = AGENTS[name]
    env = EnvSpec(id="X-v0", observation=reals(3), action=space, max_episode_steps=9)
    small = {"hidden": [8], "batch_size": 8, "learning_rate": 0.01, **form, **settings}
    agent: ValueAgent = kind(config(**small), spec=env, device="cpu", seed=0)
    return agent


def test_numbers_stand_for_joint_actions_in_the_order_of_numpy():
    actions = DiscreteActions(MultiDiscreteSpace(NVEC))
    assert actions.n == 12
    np.testing.assert_array_equal(actions.to_env(np.arange(12)), JOINT)
    assert (JOINT @ actions.strides).tolist() == list(range(12))
    single = np.array([2, 0])
    assert DiscreteActions(DiscreteSpace(3)).to_env(single) is single


@pytest.mark.parametrize("of", [np.array, torch.tensor])
def test_a_joint_action_is_allowed_where_each_of_its_choices_is(of: Any):
    mask = of([[True, False, True, True, False, False, True], [True] * 7])
    joint_mask = DiscreteActions(MultiDiscreteSpace(NVEC)).joint_mask(mask)
    assert JOINT[joint_mask[0].tolist()].tolist() == [[0, 0, 1], [0, 1, 1]]
    assert joint_mask[1].tolist() == [True] * 12
    single = of([[True, False, True]])
    assert DiscreteActions(DiscreteSpace(3)).joint_mask(single) is single


@pytest.mark.parametrize(
    ("name", "backend"),
    [*((name, "torch") for name in AGENTS), ("dqn", "numpy"), ("c51", "numpy"), ("qrdqn", "numpy")],
)
def test_joint_actions_are_learned_as_if_they_were_of_one_discrete_space(name: str, backend: str):
    joint = value_agent(name, MultiDiscreteSpace(NVEC), backend=backend)
    single = value_agent(name, DiscreteSpace(12), backend=backend)
    for seed in range(3):
        rows = batch(seed, actions=12)
        single.update(rows)
        rows.action = JOINT[rows.action]
        joint.update(rows)
    assert same(joint.state_dict()["online"], single.state_dict()["online"])
    policies = [agent.policy_factory(np.random.default_rng(0)) for agent in (single, joint)]
    obs = batch(9, rows=50).obs
    for explore in (False, True):
        for policy, agent in zip(policies, (single, joint), strict=True):
            policy.load_snapshot(agent.snapshot(env_steps=5_000))
        index, action = (policy.act(obs, explore=explore) for policy in policies)
        np.testing.assert_array_equal(action, JOINT[index])


def test_more_joint_actions_than_the_setting_allows_are_refused_with_both_numbers():
    space = MultiDiscreteSpace((40, 50))
    match = r"2,000 of them.*agent\.max_joint_actions=1024.*discrete_sac, ppo, bc, awac or iql"
    with pytest.raises(ConfigError, match=match):
        value_agent("dqn", space)
    assert value_agent("dqn", space, max_joint_actions=2_000).num_actions == 2_000
    with pytest.raises(ConfigError, match="12 of them"):
        value_agent("dqn", MultiDiscreteSpace(NVEC), max_joint_actions=11)
    # The limit applies to joint actions only.
    assert value_agent("dqn", DiscreteSpace(2_000)).num_actions == 2_000
