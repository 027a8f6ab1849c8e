"""A learning rate that follows a schedule reaches every optimizer of every agent."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np
import pytest
import torch
from continuous import batch, counted, spec
from sampling import chosen

from border_cli.agent.torch_agent import TorchAgent
from border_cli.registry import AGENTS, register_builtin

ONE_UPDATE = {"initial": 0.01, "final": 0.0, "steps": 1}  # 0.01 in the first update, then 0
STAYS = {"tau": 1e-12, "hidden": [6], "batch_size": 8}  # targets hardly move by themselves
DISCRETE = ("dqn", "qrdqn", "iqn")
MORE: dict[str, dict[str, Any]] = {
    "cql": {"conservative_gap": 0.5, "critic_learning_rate": None, "sampled_actions": 2},
}


def weights(agent: TorchAgent) -> list[np.ndarray]:
    state = agent.state_dict()
    modules = [state[name] for name in sorted(state) if isinstance(state[name], dict)]
    tensors = [each for module in modules for each in module.values()]
    return [each.numpy().copy() for each in tensors if isinstance(each, torch.Tensor)]


def agent_of(name: str, optimizer: str) -> TorchAgent:
    register_builtin()
    kind = AGENTS.entry(name).config_type
    settings = {**STAYS, **MORE.get(name, {}), "optimizer": optimizer, "learning_rate": ONE_UPDATE}
    known = {each.name for each in fields(kind)}  # bc has no targets
    config = kind(**{key: value for key, value in settings.items() if key in known})
    where = counted() if name in DISCRETE else spec()
    made: TorchAgent = AGENTS.build(config, spec=where, device="cpu", seed=3)
    return made


LEARNERS = ("awac", "bc", "cql", "dqn", "iql", "iqn", "qrdqn", "sac", "td3", "td3_bc", "tqc")


@pytest.mark.parametrize("optimizer", ["adam", "SGD"])
@pytest.mark.parametrize("name", chosen(LEARNERS, ("dqn", "cql", "iql", "td3")))
def test_nothing_is_learned_once_the_rate_has_come_to_zero(name: str, optimizer: str) -> None:
    agent = agent_of(name, optimizer)
    rows = batch(1, actions=3 if name in DISCRETE else None)
    before = weights(agent)
    agent.update(rows)
    after = weights(agent)
    assert any((one != other).any() for one, other in zip(before, after, strict=True))
    for _ in range(3):  # TD3 updates its actor at every second one
        agent.update(rows)
    for one, other in zip(after, weights(agent), strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-8)


def test_a_loaded_agent_goes_on_with_the_rate_of_its_count() -> None:
    first, second = agent_of("sac", "AdamW"), agent_of("sac", "AdamW")
    first.update(batch(1))
    second.load_state_dict(first.state_dict())
    before = weights(second)
    second.update(batch(1))
    for one, other in zip(before, weights(second), strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-8)
