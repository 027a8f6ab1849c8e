"""Small AWAC, IQL and CQL agents, and NumPy references for their losses in float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from border_cli.agent.awac import Awac
from border_cli.agent.config import AwacConfig, CqlConfig, IqlConfig
from border_cli.agent.cql import Cql
from border_cli.agent.critics import CriticLoss
from border_cli.agent.iql import Iql
from border_cli.core.spaces import EnvSpec
from border_cli.nn.batch import TensorBatch
from tests.support.continuous_env import HALF, MIDDLE, batch, counted, spec

SMALL: dict[str, Any] = {"hidden": [8, 6], "learning_rate": 0.01, "batch_size": 8}
Make = Callable[..., Any]


def awac(seed: int = 0, env: EnvSpec | None = None, **settings: Any) -> Awac:
    config = AwacConfig(**{**SMALL, **settings})
    return Awac(config, spec=env or spec(), device="cpu", seed=seed)


def iql(seed: int = 0, env: EnvSpec | None = None, **settings: Any) -> Iql:
    config = IqlConfig(**{**SMALL, **settings})
    return Iql(config, spec=env or spec(), device="cpu", seed=seed)


def cql(seed: int = 0, env: EnvSpec | None = None, **settings: Any) -> Cql:
    config = CqlConfig(**{**SMALL, "critic_learning_rate": None, "sampled_actions": 3, **settings})
    return Cql(config, spec=env or spec(), device="cpu", seed=seed)


def counted_awac(seed: int = 0, **settings: Any) -> Awac:
    return awac(seed, counted(), **settings)


def counted_iql(seed: int = 0, **settings: Any) -> Iql:
    return iql(seed, counted(), **settings)


# By name: a function that builds the agent, and its number of discrete actions, if any.
AGENTS: dict[str, tuple[Make, int | None]] = {
    "awac": (awac, None),
    "awac, discrete": (counted_awac, 3),
    "iql": (iql, None),
    "iql, discrete": (counted_iql, 3),
    "cql": (cql, None),
}


def in_double(agent: Any, actions: int | None = None) -> tuple[Any, TensorBatch]:
    """Converts the agent to float64; returns it with a batch for its losses."""
    for name, part in {**vars(agent), **vars(agent.critics)}.items():
        if isinstance(part, nn.Module) and name not in ("features", "_acting"):
            part.double()
    drawn = batch(3, actions=actions)
    action = drawn.action if actions else (drawn.action - MIDDLE) / HALF
    return agent, TensorBatch(
        obs=double(drawn.obs),
        action=torch.from_numpy(action)[:, None] if actions else double(action),
        reward=double(drawn.reward)[:, None],
        discount=double(drawn.discount)[:, None],
        next_obs=double(drawn.next_obs),
        weight=double(drawn.weight)[:, None],
    )


def double(values: Any) -> Tensor:
    return torch.from_numpy(np.asarray(values, np.float64))


def dense(network: nn.Module, rows: Any) -> Any:
    """A ReLU network in NumPy, from the state dict. [B, inputs] -> [B, outputs]"""
    state = {name: part.numpy() for name, part in network.state_dict().items()}
    count = sum(name.endswith("weight") for name in state)
    for i in range(count):
        rows = rows @ state[f"mlp.layers.{i}.weight"].T + state[f"mlp.layers.{i}.bias"]
        rows = np.maximum(rows, 0) if i < count - 1 else rows
    return rows


def critic(critics: nn.Module, member: int, obs: Any, action: Any) -> Any:
    """One critic of an ensemble in NumPy. [B, …], [B, A] -> [B]"""
    state = {name: part.numpy() for name, part in critics.state_dict().items()}
    rows = np.concatenate((obs, action), axis=1)
    count = sum(".weights." in name for name in state)
    for i in range(count):
        rows = rows @ state[f"mlp.weights.{i}"][member] + state[f"mlp.biases.{i}"][member, 0]
        rows = np.maximum(rows, 0) if i < count - 1 else rows
    return rows[:, 0]


def sampled(actor: nn.Module, obs: Any, noise: Any) -> tuple[Any, Any]:
    """Actions of a squashed Gaussian and their log-probabilities, by the change of variables."""
    mean, log_std = np.split(dense(actor, obs), 2, axis=1)
    before = mean + np.exp(log_std) * noise
    log = -0.5 * noise**2 - log_std - 0.5 * np.log(2 * np.pi) - np.log(1 - np.tanh(before) ** 2)
    return np.tanh(before), log.sum(axis=1)


def smallest(critics: nn.Module, obs: Any, action: Any) -> Any:
    """The minimum over two critics. [B]"""
    return np.minimum(*(critic(critics, member, obs, action) for member in range(2)))


def assert_critics(agent: Any, batch: TensorBatch, loss: CriticLoss, y: Any, action: Any) -> None:
    """Compares errors and loss of two critics with targets computed in NumPy."""
    q = np.stack([critic(agent.critics.online, i, batch.obs.numpy(), action) for i in range(2)])
    np.testing.assert_allclose((loss.q - loss.target)[..., 0], q - y, rtol=1e-9)
    np.testing.assert_allclose(loss.q[..., 0], q, rtol=1e-9)
    by_hand = 0.5 * (batch.weight.numpy()[:, 0] * (q - y) ** 2).mean(1).sum()
    np.testing.assert_allclose(loss.loss.item(), by_hand, rtol=1e-9)
