"""States of soft actor-critics: complete, and weights to begin another run with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from continuous import batch
from soft_agents import KINDS, agent_of, sac
from states import same

from border_cli.agent.soft_agent import SoftAgent
from border_cli.core.errors import CheckpointError
from border_cli.nn.saving import load_state, save_state


def learn(agent: SoftAgent, seeds: range) -> list[bytes]:
    """The errors and metrics of every update."""
    found = []
    for seed in seeds:
        update = agent.update(batch(seed))
        metrics = [float(each) for each in update.metrics.values()]
        found.append(update.td_error().tobytes() + np.array(metrics).tobytes())
    return found


def arrays(state: Any) -> Any:
    if isinstance(state, torch.Tensor):
        return state.numpy()
    if isinstance(state, dict):
        return {name: arrays(each) for name, each in state.items()}
    return [arrays(each) for each in state] if isinstance(state, list) else state


@pytest.mark.parametrize("kind", KINDS)
def test_twenty_updates_saved_and_twenty_more_are_forty(kind: str, tmp_path: Path):
    agent, restored = agent_of(kind, 1), agent_of(kind, 2)
    learn(agent, range(20))
    save_state(agent.state_dict(), tmp_path / "agent.pt")
    restored.load_state_dict(load_state(tmp_path / "agent.pt"))
    assert same(arrays(restored.state_dict()), arrays(agent.state_dict()))
    assert learn(restored, range(20, 40)) == learn(agent, range(20, 40))
    assert same(arrays(restored.state_dict()), arrays(agent.state_dict()))


@pytest.mark.parametrize("kind", KINDS)
def test_weights_alone_begin_a_new_training(kind: str):
    """Equal networks, targets as what they follow, the same weight of entropy; no steps."""
    old, new = agent_of(kind, 1), agent_of(kind, 2)
    learn(old, range(12))
    untouched = arrays(new.state_dict())
    new.load_weights(old.state_dict())
    saved, state = arrays(old.state_dict()), arrays(new.state_dict())
    for part in ("actor", "critic", "ent_coef"):
        assert same(state[part], saved[part])
    assert same(state["critic_target"], saved["critic"])
    for part in ("actor_optimizer", "critic_optimizer", "ent_coef_optimizer", "noise"):
        assert same(state[part], untouched[part])
    assert new.opt_steps == 0
    assert torch.equal(new.critic_fixed.mlp.weights[0], new.critic.mlp.weights[0])


def test_a_fixed_weight_of_entropy_is_that_of_the_settings_and_not_of_a_checkpoint():
    old, new = sac(ent_coef=0.3), sac(ent_coef=0.1)
    new.load_weights(old.state_dict())
    assert new.ent_coef().item() == pytest.approx(0.1)


def test_weights_of_another_number_of_critics_are_refused():
    with pytest.raises(CheckpointError, match=r"init_from\) does not fit agent=sac.*mismatch"):
        sac().load_weights(sac(num_critics=3).state_dict())


def test_a_weight_that_is_not_finite_is_named():
    agent = sac()
    agent.update(batch(0))
    assert agent.first_not_finite() is None
    agent.ent_coef.log.fill_(float("nan"))
    assert agent.first_not_finite() == "ent_coef.log"
