"""The TD loss of a value agent on given networks."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from border_cli.agent.dqn import ValueAgent
from border_cli.nn.arrays import AnyTensor
from border_cli.nn.backend import LearnedNetwork
from border_cli.nn.batch import TDLoss, TDResult, TensorBatch


def td_of(
    online: LearnedNetwork, target: Any, batch: TensorBatch, td_loss: TDLoss, *, double: bool
) -> tuple[tuple[AnyTensor, ...], TDResult]:
    """Returns gradient and TD result of a value agent with these networks."""
    config = SimpleNamespace(double=double)
    agent: Any = SimpleNamespace(online=online, target=target, td_loss=td_loss, config=config)
    cache, result = ValueAgent.td(agent, batch, ((), (), ()))
    return online.backward(cache, result.grad_output), result
