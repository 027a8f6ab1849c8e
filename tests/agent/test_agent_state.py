"""States of agents: complete, and weights to begin another run with."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from border_cli.agent.config import DqnConfig, RandomConfig
from border_cli.agent.dqn import Dqn
from border_cli.agent.random import RandomAgent
from border_cli.core.errors import CheckpointError
from border_cli.core.spaces import BoxSpace, EnvSpec
from border_cli.nn.architecture import Activation
from border_cli.nn.saving import load_state, save_state


def dqn(spec: EnvSpec, seed: int, **settings: Any) -> Dqn:
    config = DqnConfig(**{"hidden": [9, 4], "learning_rate": 0.01, **settings})
    return Dqn(config, spec=spec, device="cpu", seed=seed)


def bits(state: Any, name: str = "") -> dict[str, Any]:
    """Every leaf of a state by its path: type, shape and bytes."""
    if isinstance(state, torch.Tensor):
        return {name: (state.dtype, tuple(state.shape), state.numpy().tobytes())}
    if isinstance(state, dict | list):
        pairs = state.items() if isinstance(state, dict) else enumerate(state)
        return {
            key: leaf
            for part, value in pairs
            for key, leaf in bits(value, f"{name}.{part}").items()
        }
    return {name: state}


@pytest.mark.parametrize(
    "form",
    [
        {"loss": "huber"},
        {"loss": "mse"},
        {"num_atoms": 5, "dueling": True},
        {"noisy": True, "dueling": True, "num_atoms": 5},
        {"conservative_weight": 0.5, "layer_norm": True},
    ],
)
@pytest.mark.parametrize("tau", [1.0, 0.3])
def test_fifty_updates_saved_and_fifty_more_are_a_hundred(
    spec, make_batch, tmp_path: Path, tau: float, form: dict[str, Any]
):
    settings = {"target_interval": 7, "tau": tau, "double": True, **form}
    agent, restored = dqn(spec, 1, **settings), dqn(spec, 2, **settings)
    for seed in range(50):
        agent.update(make_batch(seed))
    save_state(agent.state_dict(), tmp_path / "agent.pt")
    restored.load_state_dict(load_state(tmp_path / "agent.pt"))
    assert bits(restored.state_dict()) == bits(agent.state_dict())
    for seed in range(50, 100):
        first, second = (each.update(make_batch(seed)) for each in (agent, restored))
        assert first.td_error().tobytes() == second.td_error().tobytes()
        for name, value in first.metrics.items():
            assert float(value) == float(second.metrics[name])
    after = bits(agent.state_dict())
    assert bits(restored.state_dict()) == after
    assert after[".opt_steps"] == 100
    assert after[".optimizer.steps.0"] == (torch.float32, (), np.float32(100).tobytes())


def test_weights_alone_begin_a_new_training(spec, make_batch):
    """As if the constructor had drawn them: equal networks, a fresh optimiser, no steps."""
    settings = {"target_interval": 3, "tau": 1.0}
    old = dqn(spec, 1, learning_rate=0.05, **settings)
    for seed in range(10):
        old.update(make_batch(seed))
    saved = old.state_dict()
    assert bits(saved["target"]) != bits(saved["online"])
    new, fresh = dqn(spec, 2, **settings), dqn(spec, 3, **settings)
    untouched = bits(new.state_dict()["optimizer"])
    new.load_weights(saved)
    state = new.state_dict()
    assert bits(state["online"]) == bits(state["target"]) == bits(saved["online"])
    assert new.opt_steps == 0
    assert bits(state["optimizer"]) == untouched
    drawn = {"online": saved["online"], "target": saved["online"], "noise": state["noise"]}
    fresh.load_state_dict({**fresh.state_dict(), **drawn})
    for seed in range(8):
        assert float(new.update(make_batch(seed)).metrics["loss"]) == float(
            fresh.update(make_batch(seed)).metrics["loss"]
        )
    assert bits(new.state_dict()) == bits(fresh.state_dict())


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (lambda state: state.pop("online"), "it has no 'online', but target, optimizer; it"),
        (lambda state: state.update(online=3), "online: .*dict"),
        (
            lambda state: state["online"].pop("mlp.layers.0.bias"),
            r"online: .*Missing key.*layers\.0\.bias",
        ),
        (lambda state: state["online"].update(x=torch.ones(1)), "online: .*Unexpected key.*x"),
        (lambda state: state.update(statistics=3), "statistics: 'int' object"),
    ],
)
def test_weights_that_do_not_fit_are_refused(spec, change: Any, match: str):
    state = dqn(spec, 1).state_dict()
    change(state)
    with pytest.raises(CheckpointError, match=match) as raised:
        dqn(spec, 2).load_weights(state)
    message = str(raised.value)
    assert message.startswith("the saved agent does not fit agent=dqn: ")
    assert "hidden" not in message  # which is not to blame


def test_weights_of_another_size_are_refused(spec):
    match = r"agent=dqn: its network 'online' differs: agent\.hidden \(saved with \[8, 4\], now "
    with pytest.raises(CheckpointError, match=match):
        dqn(spec, 2).load_weights(dqn(spec, 1, hidden=[8, 4]).state_dict())


OTHER_FORMS = [
    ({"layer_norm": True}, r"agent\.layer_norm \(saved with true\)$"),
    ({"num_atoms": 5}, r"outputs, .* agent\.num_atoms \(saved with \[\d+\], now \[\d+\]\)$"),
    ({"dueling": True}, r"its layers, by the agent or by settings such as agent\.dueling"),
    ({"noisy": True}, r"its layers, by the agent or by settings such as agent\.dueling"),
]


@pytest.mark.parametrize(("other", "said"), OTHER_FORMS, ids=[str(each) for each, _ in OTHER_FORMS])
def test_the_setting_by_which_weights_do_not_fit_is_named(spec, other: dict[str, Any], said: str):
    with pytest.raises(CheckpointError, match=said) as raised:
        dqn(spec, 2).load_weights(dqn(spec, 1, **other).state_dict())
    assert "state_dict" not in str(raised.value)


def test_weights_of_another_environment_are_refused_by_its_spaces(spec):
    bounds = np.full(7, np.inf, np.float32)
    wider = replace(
        spec, observation=BoxSpace(shape=(7,), dtype="float32", low=-bounds, high=bounds)
    )
    with pytest.raises(CheckpointError, match=r"inputs, from the spaces .* \(saved with 7, now "):
        dqn(spec, 2).load_weights(dqn(wider, 1).state_dict())


def test_weights_learned_with_another_activation_are_refused(spec, tmp_path: Path):
    """They would fit in size, and compute something else."""
    save_state(dqn(spec, 1, activation=Activation.tanh).state_dict(), tmp_path / "agent.pt")
    saved = load_state(tmp_path / "agent.pt")
    match = r"the saved agent does not fit agent\.activation=relu: it has tanh"
    with pytest.raises(CheckpointError, match=match):
        dqn(spec, 2).load_weights(saved)
    dqn(spec, 2, activation=Activation.tanh).load_weights(saved)
    del saved["activation"]  # as of earlier versions, which do not tell
    dqn(spec, 2).load_weights(saved)


def test_weights_learned_on_other_atoms_are_refused(spec):
    """The same probabilities would be those of other returns."""
    saved = dqn(spec, 1, num_atoms=5, v_max=100.0).state_dict()
    match = r"the saved agent does not fit agent\.v_max=10\.0: it has 100\.0"
    with pytest.raises(CheckpointError, match=match):
        dqn(spec, 2, num_atoms=5).load_weights(saved)
    dqn(spec, 2, num_atoms=5, v_max=100.0).load_weights(saved)
    dqn(spec, 2, v_max=3.0).load_weights(dqn(spec, 1).state_dict())  # there are no atoms


def test_the_generator_of_a_damaged_state_is_named(spec):
    state = {**dqn(spec, 1).state_dict(), "noise": torch.zeros(3, dtype=torch.uint8)}
    match = "saved state does not fit agent=dqn: the random generator and the number of updates: "
    with pytest.raises(CheckpointError, match=match):
        dqn(spec, 2).load_state_dict(state)


def test_an_agent_that_learns_nothing_has_no_weights_to_begin_with(spec):
    agent = RandomAgent(RandomConfig(), spec=spec, device="cpu", seed=0)
    with pytest.raises(CheckpointError, match="RandomAgent has no weights"):
        agent.load_weights(agent.state_dict())
    assert agent.first_not_finite() is None


@pytest.mark.parametrize(
    ("which", "index", "name"),
    [
        ("online", "mlp.layers.0.weight", "online.mlp.layers.0.weight"),
        ("target", "mlp.layers.2.bias", "target.mlp.layers.2.bias"),
        ("optimizer", "squares", "optimizer.squares.1"),
    ],
)
def test_a_weight_that_is_not_finite_is_named(spec, make_batch, which, index, name):
    agent = dqn(spec, 1)
    agent.update(make_batch(0))
    assert agent.first_not_finite() is None
    state = agent.state_dict()
    part = state[which][index]
    (part[1] if isinstance(part, list) else part).view(-1)[-1] = float("-inf")
    agent.load_state_dict(state)
    assert agent.first_not_finite() == name


def test_an_update_that_breaks_the_weights_is_found(spec, make_batch):
    agent, batch = dqn(spec, 1), make_batch(0)
    batch.reward[3] = np.nan
    agent.update(batch)
    assert agent.first_not_finite() == "online.mlp.layers.0.weight"
