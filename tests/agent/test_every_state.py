"""States of every agent: complete, and weights to begin another run with."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from compilers import needs_compiler
from continuous import batch, counted, spec
from torch import nn

from border_cli.agent.torch_agent import TorchAgent
from border_cli.core.errors import CheckpointError
from border_cli.core.returns import Moments
from border_cli.core.spaces import BoxSpace, DictSpace
from border_cli.core.types import Batch
from border_cli.nn.saving import load_state, save_state
from border_cli.registry import AGENTS, register_builtin

SMALL: dict[str, Any] = {"hidden": [9, 4], "learning_rate": 0.01, "batch_size": 8}
NORMALISED = {"normalize_obs": True, "normalize_reward": True}
FOLLOWED = {"target_interval": 7, "tau": 0.3}
SINGLE = {"num_critics": 1, "policy_delay": 1, "target_noise": 0.0}
# Of each: the agent, whether it counts its actions, and its settings.
KINDS: dict[str, tuple[str, bool, dict[str, Any]]] = {
    "dqn": ("dqn", True, {"double": True, **FOLLOWED}),
    "rainbow": (
        *("dqn", True),
        {"dueling": True, "noisy": True, "num_atoms": 5, "exploration": "greedy", **FOLLOWED},
    ),
    "dqn, conservative": ("dqn", True, {"conservative_weight": 1.0, **NORMALISED}),
    "qrdqn": ("qrdqn", True, {"num_quantiles": 5, **FOLLOWED}),
    "iqn": ("iqn", True, {"double": True, **FOLLOWED}),
    "sac": ("sac", False, NORMALISED),
    "redq": ("sac", False, {"num_critics": 4, "subset": 2, "policy_delay": 3}),
    "droq": ("sac", False, {"dropout": 0.2, "critic_layer_norm": True}),
    "tqc": ("tqc", False, {"num_quantiles": 5, "dropped_quantiles": 1}),
    "td3": ("td3", False, {"policy_delay": 3, "tau": 0.3}),
    "ddpg": ("td3", False, SINGLE),
    "td3_bc": ("td3_bc", False, NORMALISED),
    "bc": ("bc", False, {}),
    "bc, stochastic": ("bc", False, {"stochastic": True}),
    "bc, counted": ("bc", True, {}),
    "awac": ("awac", False, {"tau": 0.3}),
    "awac, counted": ("awac", True, {}),
    "iql": ("iql", False, {"tau": 0.3, **NORMALISED}),
    "iql, counted": ("iql", True, {}),
    "cql": ("cql", False, {"sampled_actions": 3}),
    "cql, gap": (
        *("cql", False),
        {"sampled_actions": 3, "conservative_gap": 0.5, "backup_entropy": True},
    ),
}
each_kind = pytest.mark.parametrize("kind", KINDS)


def agent_of(kind: str, seed: int, **more: Any) -> TorchAgent:
    register_builtin()
    name, counts, settings = KINDS[kind]
    config = AGENTS.entry(name).config_type(**{**SMALL, **settings, **more})
    where = counted() if counts else spec()
    agent: TorchAgent = AGENTS.build(config, spec=where, device="cpu", seed=seed)
    return agent


def rows(kind: str, seed: int) -> Batch:
    return batch(seed, actions=3 if KINDS[kind][1] else None)


def ranks_rows(kind: str) -> bool:
    """Whether the agent has TD errors."""
    return KINDS[kind][0] != "bc"


def learn(agent: TorchAgent, kind: str, seeds: range) -> list[bytes]:
    """The errors and metrics of every update."""
    found = []
    for seed in seeds:
        seen = rows(kind, seed)
        agent.observe(seen)
        agent.observe_returns(Moments.of(seen.reward.astype(np.float64)))
        update = agent.update(seen)
        metrics = [float(each) for each in update.metrics.values()]
        errors = update.td_error() if ranks_rows(kind) else np.zeros(8)
        found.append(errors.tobytes() + np.array(metrics).tobytes())
    return found


def bits(state: Any) -> Any:
    if isinstance(state, torch.Tensor):
        return state.dtype, tuple(state.shape), state.numpy().tobytes()
    if isinstance(state, dict):
        return {name: bits(each) for name, each in state.items()}
    return [bits(each) for each in state] if isinstance(state, list) else state


@each_kind
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


@each_kind
def test_weights_alone_begin_a_new_training(kind: str):
    """Targets equal to what they follow, fresh optimisers, no steps."""
    old, new = agent_of(kind, 1), agent_of(kind, 2)
    learn(old, kind, range(8))
    saved, untouched = old.state_dict(), new.state_dict()
    new.load_weights(saved)
    state = new.state_dict()
    optimizers = [part for part in state if part.endswith("optimizer")]
    assert optimizers
    for part in {*state} - {*optimizers, "noise", "opt_steps"}:
        assert bits(state[part]) == bits(saved[new.targets.get(part, part)]), part
    for part in [*optimizers, "noise"]:
        assert bits(state[part]) == bits(untouched[part]), part
    for target, online in new.targets.items():
        assert bits(saved[target]) != bits(saved[online]), "it did not lag behind"
    assert new.opt_steps == 0


@each_kind
def test_weights_of_another_agent_are_refused(kind: str):
    name = KINDS[kind][0]
    other = {"td3": "bc", "td3_bc": "bc"}.get(name, "td3")
    if kind == "bc":
        other = "bc, stochastic"  # with twice as many outputs
    state, agent = agent_of(other, 1).state_dict(), agent_of(kind, 1)
    state.pop("statistics", None)
    if "statistics" in agent.state_dict():
        state["statistics"] = agent.state_dict()["statistics"]
    # Its form, or that it has other parts.
    match = rf"does not fit agent={name}: (its network '[a-z]+' differs|it has no '[a-z]+', but )"
    with pytest.raises(CheckpointError, match=match):
        agent.load_weights(state)


@each_kind
def test_a_weight_that_is_not_finite_is_named(kind: str):
    agent = agent_of(kind, 1)
    assert agent.first_not_finite() is None
    state = agent.state_dict()
    part = next(name for name in ("online", "actor") if name in state)
    weight = list(state[part])[-1]
    state[part][weight].view(-1)[-1] = float("nan")
    agent.load_state_dict(state)
    assert agent.first_not_finite() == f"{part}.{weight}"


@each_kind
def test_a_snapshot_never_changes(kind: str):
    agent = agent_of(kind, 1)
    arrays = agent.snapshot().arrays
    before = {name: array.tobytes() for name, array in arrays.items()}
    learn(agent, kind, range(6))
    assert {name: array.tobytes() for name, array in arrays.items()} == before
    assert any(array.tobytes() != before[name] for name, array in agent.snapshot().arrays.items())


@each_kind
def test_what_shares_memory_with_the_weights_has_those_that_were_loaded(kind: str):
    agent, other = agent_of(kind, 1), agent_of(kind, 2)
    learn(agent, kind, range(3))
    other.load_state_dict(agent.state_dict())
    for name, twin in vars(other).items():
        mine = getattr(agent, name)
        if isinstance(twin, nn.Module):
            assert bits(dict(twin.state_dict())) == bits(dict(mine.state_dict())), name


@pytest.mark.parametrize(
    ("shape", "dtype"), [((36, 36, 1), "uint8"), ((10, 10, 2), "bool")], ids=["large", "small"]
)
@each_kind
def test_images_beside_numbers_are_learned_from_acted_on_and_saved(
    kind: str, shape: tuple[int, ...], dtype: str
):
    register_builtin()
    name, counts, settings = KINDS[kind]
    most = 255 if dtype == "uint8" else 1
    pixels = BoxSpace(shape=shape, dtype=dtype, low=np.zeros(1), high=np.full(1, most))
    seen = DictSpace({"screen": pixels, "speed": spec().observation})  # type: ignore[dict-item]
    where = replace(counted() if counts else spec(), observation=seen)
    config = AGENTS.entry(name).config_type(**{**SMALL, **settings})
    agent, other = (AGENTS.build(config, spec=where, device="cpu", seed=i) for i in (1, 2))
    drawn = rows(kind, 0)
    drawn_screens = np.random.default_rng(0).integers(most, size=(8, *shape), endpoint=True)
    screens = drawn_screens.astype(dtype)
    given = replace(
        drawn,
        obs={"screen": screens, "speed": drawn.obs},
        next_obs={"screen": screens[::-1].copy(), "speed": drawn.next_obs},
    )
    for _ in range(3):
        agent.observe(given)
        update = agent.update(given)
    assert not ranks_rows(kind) or np.isfinite(update.td_error()).all()
    assert agent.first_not_finite() is None
    other.load_state_dict(agent.state_dict())
    actions = []
    for each in (agent, other):
        policy = each.policy_factory(np.random.default_rng(0))
        policy.load_snapshot(each.snapshot())
        actions.append(policy.act(given.obs, explore=True))
    assert actions[0].shape == given.action.shape
    assert actions[0].tobytes() == actions[1].tobytes()


@pytest.mark.slow
@needs_compiler
@each_kind
def test_a_compiled_agent_learns_what_an_eager_one_learns(kind: str):
    eager, compiled = agent_of(kind, 1), agent_of(kind, 1, compile=True)
    learn(eager, kind, range(7))
    with compiled.learner_thread():
        assert compiled.opt_steps == 0
        learn(compiled, kind, range(7))
    others = compiled.snapshot().arrays
    for name, array in eager.snapshot().arrays.items():
        np.testing.assert_allclose(others[name], array, rtol=1e-3, atol=1e-5)
