"""Problems with known solutions and random batches, for tests of quantile agents.

Both problems are batches of all their transitions.

RISKS: in state 0, action 0 ends the episode with reward 0.2 and action 1 leads to state 1. There
action 0 pays 0.4 and action 1 pays 0 or 1, each with probability 1/2. Rewards are not discounted.
The gamble is best by its mean (0.5), and worst by the mean of its lowest quarter (0).

LINKS: a chain of three states. Action 0 stays, action 1 moves to the next state; from the last
state it ends the episode with reward 1.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray

from border_cli.agent.dqn import ValueAgent
from border_cli.core.spaces import DiscreteSpace, EnvSpec
from border_cli.core.types import Batch
from border_cli.nn.batch import TensorBatch
from tests.support.policies import policy_of


def spec_of(states: int) -> EnvSpec:
    """Returns a spec with `states` states and two actions."""
    return EnvSpec(
        id="Known",
        observation=DiscreteSpace(states),
        action=DiscreteSpace(2),
        max_episode_steps=None,
    )


def batch_of(*rows: tuple[int, int, float, float, int]) -> Batch:
    """Builds a batch from rows (state, action, reward, discount, next state)."""
    obs, action, reward, discount, next_obs = (
        np.array(column) for column in zip(*rows, strict=True)
    )
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
    """Trains an agent in stages (learning rate, updates), always on the whole batch."""
    agent = make(stages[0][0])
    for learning_rate, updates in stages:
        successor = make(learning_rate)
        successor.load_state_dict(agent.state_dict())
        agent = successor
        for _ in range(updates):
            agent.update(batch)
    return agent


def values_and_actions(agent: ValueAgent, states: int) -> tuple[NDArray[np.float32], list[int]]:
    """Returns the policy's values of all states [states, actions] and its greedy actions."""
    policy = policy_of(agent)
    all_states = np.arange(states)
    return policy.network(all_states), policy.act(all_states, explore=False).tolist()


def drawn_rows(seed: int, rows: int, inputs: int, actions: int) -> TensorBatch:
    """Returns random float64 transitions, the last of which ends its episode."""
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
