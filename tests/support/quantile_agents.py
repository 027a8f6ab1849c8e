"""What the tests of agents that learn quantiles share: known answers, random rows, gradients.

A choice under risk whose distributions are known, and a chain, are batches of all transitions.

Risky: state 0 gives 0.2 at once (action 0) or goes on to state 1 (action 1). There action 0 is a
sure 0.4, action 1 a gamble of 0 or 1, each with probability 1/2. Nothing is discounted. By the mean
the gamble is the best (0.5); by the mean of the lowest quarter, which is 0, it is the worst.

Chain: three states, action 1 moves on and ends behind the last with reward 1, action 0 stays.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray

from border_cli.agent.dqn import ValueAgent
from border_cli.core.spaces import DiscreteSpace, EnvSpec
from border_cli.core.types import Batch
from border_cli.nn.tensor_batch import TensorBatch
from tests.support.policies import policy_of


def spec_of(states: int) -> EnvSpec:
    """So many states, two actions."""
    return EnvSpec(
        id="Known",
        observation=DiscreteSpace(states),
        action=DiscreteSpace(2),
        max_episode_steps=None,
    )


def batch_of(*rows: tuple[int, int, float, float, int]) -> Batch:
    """Rows of state, action, reward, discount and next state."""
    obs, action, reward, discount, next_obs = (np.array(each) for each in zip(*rows, strict=True))
    return Batch(
        obs=obs,
        action=action,
        reward=reward.astype(np.float32),
        discount=discount.astype(np.float32),
        next_obs=next_obs,
        weight=np.ones(len(rows), np.float32),
        index=np.arange(len(rows)),
    )


RISKY = spec_of(2)
RISKS = batch_of(
    *[(0, 0, 0.2, 0.0, 0), (0, 1, 0.0, 1.0, 1), (1, 0, 0.4, 0.0, 0)],
    *[(1, 1, 0.0, 0.0, 0), (1, 1, 1.0, 0.0, 0)],
)

CHAIN = spec_of(3)
LINKS = batch_of(
    *[(0, 0, 0.0, 0.9, 0), (0, 1, 0.0, 0.9, 1), (1, 0, 0.0, 0.9, 1)],
    *[(1, 1, 0.0, 0.9, 2), (2, 0, 0.0, 0.9, 2), (2, 1, 1.0, 0.0, 2)],
)
CHAIN_VALUES = np.array([[0.729, 0.81], [0.81, 0.9], [0.9, 1.0]])  # [state, action]


def trained(
    make: Callable[[float], ValueAgent], batch: Batch, stages: list[tuple[float, int]]
) -> ValueAgent:
    """The agent after stages of a learning rate and a number of updates on the whole batch."""
    agent = make(stages[0][0])
    for learning_rate, updates in stages:
        slower = make(learning_rate)
        slower.load_state_dict(agent.state_dict())
        agent = slower
        for _ in range(updates):
            agent.update(batch)
    return agent


def values_and_actions(agent: ValueAgent, states: int) -> tuple[NDArray[np.float32], list[int]]:
    """What the agent's policy sees of every state, [states, actions], and does there."""
    policy = policy_of(agent)
    every = np.arange(states)
    return policy.network(every), policy.act(every, explore=False).tolist()


def drawn_rows(seed: int, rows: int, inputs: int, actions: int) -> TensorBatch:
    """Random rows in double precision; the last ends its episode."""
    rng = np.random.default_rng(seed)
    discount = np.full((rows, 1), 0.9)
    discount[-1] = 0
    arrays = {
        "obs": rng.normal(size=(rows, inputs)),
        "action": rng.integers(actions, size=(rows, 1)),
        "reward": rng.normal(size=(rows, 1)),
        "discount": discount,
        "next_obs": rng.normal(size=(rows, inputs)),
        "weight": rng.random((rows, 1)),
    }
    return TensorBatch(**{name: torch.from_numpy(array) for name, array in arrays.items()})
