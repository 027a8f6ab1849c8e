"""Q-networks with seeded weights, and the TD loss on them."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

from border_cli.agent.dqn import ValueAgent
from border_cli.core.spaces import Space
from border_cli.nn.architecture import Architecture
from border_cli.nn.dense import Gradient
from border_cli.nn.network import LearnedNetwork, Network
from border_cli.nn.tensor_batch import TDLoss, TDResult, TensorBatch


def q_network(space: Space, hidden: Sequence[int], num_actions: int, seed: int) -> Network:
    """Returns a network for Q(s, ·) with weights drawn from this seed."""
    architecture = Architecture(space, hidden=tuple(hidden))
    return Network(architecture, num_actions, np.random.default_rng(seed))


def td_of(
    online: LearnedNetwork, target: Any, batch: TensorBatch, td_loss: TDLoss, *, double: bool
) -> tuple[Gradient, TDResult]:
    """Returns gradient and TD result of a value agent with these networks."""
    config = SimpleNamespace(double=double)
    agent: Any = SimpleNamespace(online=online, target=target, td_loss=td_loss, config=config)
    cache, result = ValueAgent.td(agent, batch, ((), (), ()))
    return online.backward(cache, result.grad_output), result
