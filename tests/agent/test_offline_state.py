"""States of AWAC, IQL and CQL: complete, and weights to begin another run with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from continuous import batch
from offline_agents import AGENTS, cql, iql

from border_cli.nn.saving import load_state, save_state

KINDS: dict[str, tuple[Any, int | None, dict[str, Any]]] = {
    **{name: (make, actions, {"tau": 0.3}) for name, (make, actions) in AGENTS.items()},
    "iql, normalised": (iql, None, {"normalize_obs": True, "normalize_reward": True}),
    "cql, gap": (cql, None, {"conservative_gap": 0.5, "backup_entropy": True}),
}


def agent_of(kind: str, seed: int, **more: Any) -> Any:
    make, _, settings = KINDS[kind]
    return make(seed, **settings, **more)


def learn(agent: Any, kind: str, seeds: range) -> list[bytes]:
    """The errors and metrics of every update."""
    found = []
    for seed in seeds:
        rows = batch(seed, actions=KINDS[kind][1])
        agent.observe(rows)
        update = agent.update(rows)
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


@pytest.mark.parametrize("kind", KINDS)
def test_weights_alone_begin_with_targets_equal_to_what_they_follow(kind: str):
    old, new = agent_of(kind, 1), agent_of(kind, 2)
    learn(old, kind, range(8))
    saved, untouched = old.state_dict(), new.state_dict()
    assert bits(saved["critic_target"]) != bits(saved["critic"])
    new.load_weights(saved)
    state = new.state_dict()
    assert bits(state["critic"]) == bits(state["critic_target"]) == bits(saved["critic"])
    for part in {"actor", "value", "conservative", "ent_coef"} & set(state):
        assert bits(state[part]) == bits(saved[part])
    optimizers = [part for part in state if part.endswith("optimizer")]
    assert len(optimizers) >= 2
    assert all(bits(state[part]) == bits(untouched[part]) for part in optimizers)
    assert new.opt_steps == 0


@pytest.mark.parametrize(
    ("kind", "part", "name"),
    [
        ("awac", "actor", "log_std"),
        ("iql", "value", "mlp.layers.2.bias"),
        ("cql, gap", "conservative", "log"),
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


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
@pytest.mark.parametrize("kind", KINDS)
def test_a_compiled_agent_learns_what_an_eager_one_learns(kind: str):
    eager, compiled = agent_of(kind, 1), agent_of(kind, 1, compile=True)
    learn(eager, kind, range(7))
    with compiled.learner_thread():
        assert compiled.opt_steps == 0
        learn(compiled, kind, range(7))
    others = compiled.snapshot().arrays
    for name, array in eager.snapshot().arrays.items():
        np.testing.assert_allclose(others[name], array, rtol=1e-3, atol=1e-5)
