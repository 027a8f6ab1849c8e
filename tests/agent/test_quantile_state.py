"""States of the agents that learn quantiles: complete, and weights to begin another run with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from border_cli.agent.config import IqnConfig, QrdqnConfig
from border_cli.agent.iqn import Iqn
from border_cli.agent.qrdqn import Qrdqn
from border_cli.agent.value_agent import ValueAgent
from border_cli.core.errors import CheckpointError
from border_cli.core.spaces import EnvSpec
from border_cli.nn.saving import load_state, save_state

COMMON: dict[str, Any] = {"hidden": [9, 4], "learning_rate": 0.01, "target_interval": 7}


def made(name: str, spec: EnvSpec, seed: int) -> ValueAgent:
    if name == "iqn":
        return Iqn(IqnConfig(**COMMON, double=True), spec=spec, device="cpu", seed=seed)
    config = QrdqnConfig(**COMMON, num_quantiles=5, tau=0.3)
    return Qrdqn(config, spec=spec, device="cpu", seed=seed)


def arrays(agent: ValueAgent) -> dict[str, bytes]:
    state = agent.state_dict()
    online = {f"{part}.{name}": value for part in ("online", "target")
              for name, value in state[part].items()}  # fmt: skip
    moments = {f"{name}.{i}": value for name in ("means", "squares", "steps")
               for i, value in enumerate(state["optimizer"][name])}  # fmt: skip
    named = online | moments | {"noise": state["noise"]}
    return {name: value.numpy().tobytes() for name, value in named.items()}


@pytest.mark.parametrize("name", ["iqn", "qrdqn"])
def test_thirty_updates_saved_and_thirty_more_are_sixty(
    name: str, spec, make_batch, tmp_path: Path
):
    agent, restored = made(name, spec, 1), made(name, spec, 2)
    for seed in range(30):
        agent.update(make_batch(seed))
    save_state(agent.state_dict(), tmp_path / "agent.pt")
    restored.load_state_dict(load_state(tmp_path / "agent.pt"))
    assert arrays(restored) == arrays(agent)
    for seed in range(30, 60):
        first, second = (each.update(make_batch(seed)) for each in (agent, restored))
        assert first.td_error().tobytes() == second.td_error().tobytes()
        for metric, value in first.metrics.items():
            assert float(value) == float(second.metrics[metric])
    assert arrays(restored) == arrays(agent)
    assert restored.opt_steps == 60


@pytest.mark.parametrize("name", ["iqn", "qrdqn"])
def test_weights_alone_begin_a_new_training(name: str, spec, make_batch):
    old, new = made(name, spec, 1), made(name, spec, 2)
    for seed in range(10):
        old.update(make_batch(seed))
    saved = old.state_dict()
    new.load_weights(saved)
    begun = new.state_dict()
    for weight, value in saved["online"].items():
        assert torch.equal(begun["online"][weight], value)
        assert torch.equal(begun["target"][weight], value)
    assert new.opt_steps == 0
    assert not any(each.any() for each in begun["optimizer"]["means"])


@pytest.mark.parametrize("name", ["iqn", "qrdqn"])
def test_weights_of_another_form_are_refused(name: str, spec):
    other = {"iqn": "qrdqn", "qrdqn": "iqn"}[name]
    state = made(other, spec, 1).state_dict()
    with pytest.raises(CheckpointError, match=rf"does not fit agent={name} .*Missing key"):
        made(name, spec, 1).load_weights(state)


@pytest.mark.parametrize("name", ["iqn", "qrdqn"])
def test_a_snapshot_holds_the_online_network_and_never_changes(name: str, spec, make_batch):
    agent = made(name, spec, 1)
    agent.update(make_batch(0))
    snapshot = agent.snapshot()
    online = agent.state_dict()["online"]
    assert list(snapshot.arrays) == [f"network.{weight}" for weight in online]
    agent.update(make_batch(1))
    for weight, array in snapshot.arrays.items():
        np.testing.assert_array_equal(array, online[weight.removeprefix("network.")].numpy())
