"""Separate hidden layers for the actor and the critics."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from border_cli.agent.learning_agent import LearningAgent
from border_cli.errors import CheckpointError
from border_cli.registry import AGENTS, register_builtin
from tests.support.continuous_env import spec
from tests.support.policies import policy_of

register_builtin()
KINDS = ("sac", "tqc", "cql", "td3", "td3_bc", "awac", "iql")


def agent_of(kind: str, **settings: Any) -> LearningAgent:
    config = AGENTS.entry(kind).config_type(**settings)
    agent: LearningAgent = AGENTS.build(config, spec=spec(), device="cpu", seed=0)
    return agent


def units(state: Any) -> list[int]:
    """Returns the hidden sizes from the shapes of biases: [units], or [E, 1, units] for critics."""
    return [tensor.shape[-1] for name, tensor in state.items() if "bias" in name][:-1]


@pytest.mark.parametrize("kind", KINDS)
def test_actor_and_critics_have_layers_of_their_own(kind: str):
    agent = agent_of(kind, hidden=[9], actor_hidden=[7, 6], critic_hidden=[5])
    state = agent.state_dict()
    assert units(state["actor"]) == [7, 6]
    assert units(state["critic"]) == units(state["critic_target"]) == [5]
    assert all(units(state[name]) == [5] for name in ("value",) if name in state)
    policy = policy_of(agent)
    assert policy.act(np.zeros((3, 3), np.float32), explore=False).shape == (3, 2)


@pytest.mark.parametrize("kind", KINDS)
def test_null_means_the_layers_of_hidden(kind: str):
    common, apart = agent_of(kind, hidden=[9]), agent_of(kind, hidden=[4], actor_hidden=[9])
    assert units(apart.state_dict()["critic"]) == [4]
    agent_of(kind, hidden=[3], actor_hidden=[9], critic_hidden=[9]).load_state_dict(
        common.state_dict()  # as saved before these settings existed
    )
    with pytest.raises(CheckpointError, match=r"critic: .*size mismatch"):
        apart.load_state_dict(common.state_dict())
