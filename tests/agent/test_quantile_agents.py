"""What QR-DQN, whose quantiles are fixed, and IQN, which draws them, have in common."""

from __future__ import annotations

from typing import Any

import pytest

from border_cli.agent.config import IqnConfig, QrdqnConfig
from border_cli.agent.dqn import ValueAgent
from border_cli.agent.iqn import Iqn
from border_cli.agent.qrdqn import Qrdqn
from border_cli.core.spaces import EnvSpec

each_agent = pytest.mark.parametrize("name", ["iqn", "qrdqn"])


def made(name: str, spec: EnvSpec, **settings: Any) -> ValueAgent:
    where: dict[str, Any] = {"spec": spec, "device": "cpu", "seed": 0}
    if name == "iqn":
        return Iqn(IqnConfig(hidden=[9, 4], **settings), **where)
    return Qrdqn(QrdqnConfig(hidden=[9, 4], num_quantiles=4, **settings), **where)


@each_agent
def test_rows_without_weight_say_nothing(name: str, spec, make_batch):
    agents = [made(name, spec) for _ in range(2)]
    batches = [make_batch(1), make_batch(1)]
    for batch in batches:
        batch.weight[3] = 0
    batches[1].obs[3], batches[1].reward[3] = 5.0, -70.0
    updates = [agent.update(batch) for agent, batch in zip(agents, batches, strict=True)]
    assert float(updates[0].metrics["loss"]) == float(updates[1].metrics["loss"])
    errors = [update.td_error() for update in updates]
    assert errors[1][3] > errors[0][3] + 10
    assert errors[0].shape == (8,)


@each_agent
def test_every_metric_has_its_name(name: str, spec, make_batch):
    assert set(made(name, spec).update(make_batch(0)).metrics) == {"loss", "q_mean", "grad_norm"}
    unclipped = made(name, spec, max_grad_norm=None).update(make_batch(0))
    assert "grad_norm" not in unclipped.metrics
