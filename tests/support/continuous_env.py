"""Specs of small environments, mainly with continuous actions, and batches for them."""

from __future__ import annotations

from typing import Any

import numpy as np

from border_cli.core.spaces import DiscreteSpace, EnvSpec
from border_cli.core.types import Batch
from tests.support.spaces import box, reals

LOW, HIGH = np.array([-2, 0], np.float32), np.array([2, 6], np.float32)
MIDDLE, HALF = (LOW + HIGH) / 2, (HIGH - LOW) / 2


def spec(observation: int = 3) -> EnvSpec:
    """Observations of `observation` numbers; actions of two, from -2 to 2 and from 0 to 6."""
    return EnvSpec(
        id="Reach-v0",
        observation=reals(observation),
        action=box((2,), low=LOW, high=HIGH),
        max_episode_steps=9,
    )


def counted() -> EnvSpec:
    """Observations of three numbers; three discrete actions."""
    return EnvSpec(
        id="Count-v0", observation=reals(3), action=DiscreteSpace(3), max_episode_steps=9
    )


def batch(seed: int, rows: int = 8, *, actions: int | None = None) -> Batch:
    """Random transitions for `spec()`, or for `actions` discrete actions if given."""
    rng = np.random.default_rng(seed)
    continuous = (MIDDLE + HALF * rng.uniform(-1, 1, (rows, 2))).astype(np.float32)
    return Batch(
        obs=rng.standard_normal((rows, 3)).astype(np.float32),
        action=continuous if actions is None else rng.integers(actions, size=rows),
        reward=rng.normal(0, 2, rows).astype(np.float32),
        discount=np.where(rng.random(rows) < 0.3, 0, 0.9).astype(np.float32),
        next_obs=rng.standard_normal((rows, 3)).astype(np.float32),
        weight=rng.random(rows).astype(np.float32),
        index=np.arange(rows),
    )


def data_set(obs: Any, action: Any, reward: Any, discount: Any, next_obs: Any) -> Batch:
    """A batch of a whole fixed data set, converted to float32 except for the actions."""
    count = len(reward)
    return Batch(
        obs=np.asarray(obs, np.float32),
        action=np.asarray(action),
        reward=np.asarray(reward, np.float32),
        discount=np.broadcast_to(np.asarray(discount, np.float32), count).copy(),
        next_obs=np.asarray(next_obs, np.float32),
        weight=np.ones(count, np.float32),
        index=np.arange(count),
    )


def grid(points: int = 9) -> np.ndarray:
    """All pairs of `points` evenly spaced numbers from -1 to 1. [points^2, 2]"""
    axis = np.linspace(-1, 1, points)
    return np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)


def of_every_action(action: np.ndarray, reward: np.ndarray, discount: float) -> Batch:
    """A data set with a single state, in which these actions were taken."""
    nothing = np.zeros((len(action), 3))
    scaled = (MIDDLE + HALF * action).astype(np.float32)
    return data_set(nothing, scaled, reward, discount, nothing)
