"""States of td3, td3_bc and bc: complete, and weights to begin another run with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from continuous import batch, counted, spec

from border_cli.agent.bc import Bc
from border_cli.agent.config import BcConfig, Td3BcConfig, Td3Config
from border_cli.agent.td3 import Td3
from border_cli.agent.td3_bc import Td3Bc
from border_cli.agent.torch_agent import TorchAgent
from border_cli.core.errors import CheckpointError
from border_cli.core.types import Batch
from border_cli.nn.saving import load_state, save_state

SMALL: dict[str, Any] = {"hidden": [9, 4], "learning_rate": 0.01}
KINDS = ("td3", "ddpg", "td3_bc", "bc", "bc, stochastic", "bc, counted")


def agent_of(kind: str, seed: int, **settings: Any) -> TorchAgent:
    changes = {**SMALL, **settings}
    where: dict[str, Any] = {"spec": spec(), "device": "cpu", "seed": seed}
    if kind == "td3":
        return Td3(Td3Config(**changes, policy_delay=3, tau=0.3), **where)
    if kind == "ddpg":
        single: dict[str, Any] = {"num_critics": 1, "policy_delay": 1, "target_noise": 0.0}
        return Td3(Td3Config(**changes, **single), **where)
    if kind == "td3_bc":
        normalised = {"normalize_obs": True, "normalize_reward": True}
        return Td3Bc(Td3BcConfig(**changes, **normalised), **where)
    if kind == "bc, counted":
        return Bc(BcConfig(**changes), spec=counted(), device="cpu", seed=seed)
    return Bc(BcConfig(**changes, stochastic=kind != "bc"), **where)


def rows(kind: str, seed: int) -> Batch:
    return batch(seed, actions=3 if kind == "bc, counted" else None)


def learn(agent: TorchAgent, kind: str, seeds: range) -> list[bytes]:
    """The errors and metrics of every update."""
    found = []
    for seed in seeds:
        agent.observe(rows(kind, seed))
        update = agent.update(rows(kind, seed))
        metrics = [float(each) for each in update.metrics.values()]
        found.append(update.td_error().tobytes() + np.array(metrics).tobytes())
    return found


def bits(state: Any) -> Any:
    if isinstance(state, torch.Tensor):
        return state.dtype, tuple(state.shape), state.numpy().tobytes()
    if isinstance(state, dict):
        return {name: bits(each) for name, each in state.items()}
    return [bits(each) for each in state] if isinstance(state, list) else state


@pytest.mark.parametrize("kind", KINDS)
def test_twenty_updates_saved_and_twenty_more_are_forty(kind: str, tmp_path: Path):
    agent, restored = agent_of(kind, 1), agent_of(kind, 2)
    learn(agent, kind, range(20))
    save_state(agent.state_dict(), tmp_path / "agent.pt")
    restored.load_state_dict(load_state(tmp_path / "agent.pt"))
    assert bits(restored.state_dict()) == bits(agent.state_dict())
    more = range(20, 40)
    assert learn(restored, kind, more) == learn(agent, kind, more)
    assert bits(restored.state_dict()) == bits(agent.state_dict())
    arrays, others = agent.snapshot().arrays, restored.snapshot().arrays
    assert all(array.tobytes() == others[name].tobytes() for name, array in arrays.items())


@pytest.mark.parametrize("kind", ["td3", "td3_bc"])
def test_the_actor_climbs_the_critic_that_was_loaded(kind: str):
    agent, other = agent_of(kind, 1), agent_of(kind, 2)
    assert isinstance(other, Td3)
    other.load_state_dict(agent.state_dict())
    features, action = torch.zeros(2, 3), torch.zeros(2, 2)
    with torch.no_grad():
        torch.testing.assert_close(
            other.first_critic(features, action), other.critic(features, action)[:1]
        )


@pytest.mark.parametrize("kind", ["td3", "td3_bc"])
def test_weights_alone_begin_with_targets_equal_to_what_they_follow(kind: str):
    old, new = agent_of(kind, 1), agent_of(kind, 2)
    learn(old, kind, range(8))
    saved, untouched = old.state_dict(), new.state_dict()
    assert bits(saved["actor_target"]) != bits(saved["actor"])
    new.load_weights(saved)
    state = new.state_dict()
    assert bits(state["actor"]) == bits(state["actor_target"]) == bits(saved["actor"])
    assert bits(state["critic"]) == bits(state["critic_target"]) == bits(saved["critic"])
    for optimizer in ("actor_optimizer", "critic_optimizer"):
        assert bits(state[optimizer]) == bits(untouched[optimizer])
    assert new.opt_steps == 0


def test_weights_of_another_agent_are_refused():
    with pytest.raises(CheckpointError, match=r"does not fit agent=td3 .*'critic'"):
        agent_of("td3", 1).load_weights(agent_of("bc", 1).state_dict())


@pytest.mark.parametrize(
    ("kind", "part", "name"),
    [
        ("td3", "actor_target", "mlp.layers.1.bias"),
        ("td3_bc", "critic", "mlp.weights.0"),
        ("bc", "actor", "mlp.layers.0.weight"),
    ],
)
def test_a_weight_that_is_not_finite_is_named(kind: str, part: str, name: str):
    agent = agent_of(kind, 1)
    assert agent.first_not_finite() is None
    state = agent.state_dict()
    state[part][name].view(-1)[-1] = float("nan")
    agent.load_state_dict(state)
    assert agent.first_not_finite() == f"{part}.{name}"


@pytest.mark.parametrize("kind", KINDS)
def test_a_snapshot_never_changes(kind: str):
    agent = agent_of(kind, 1)
    arrays = agent.snapshot().arrays
    before = {name: array.tobytes() for name, array in arrays.items()}
    learn(agent, kind, range(6))
    assert {name: array.tobytes() for name, array in arrays.items()} == before
    assert any(array.tobytes() != before[name] for name, array in agent.snapshot().arrays.items())


needs_compiler = pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")


@pytest.mark.slow
@needs_compiler
@pytest.mark.parametrize("kind", KINDS)
def test_a_compiled_agent_learns_what_an_eager_one_learns(kind: str):
    eager, compiled = agent_of(kind, 1), agent_of(kind, 1, compile=True, batch_size=8)
    learn(eager, kind, range(7))
    with compiled.learner_thread():
        assert compiled.opt_steps == 0
        learn(compiled, kind, range(7))
    others = compiled.snapshot().arrays
    for name, array in eager.snapshot().arrays.items():
        np.testing.assert_allclose(others[name], array, rtol=1e-3, atol=1e-5)
