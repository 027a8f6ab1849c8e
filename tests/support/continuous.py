"""A small environment with continuous actions in words, and batches of random rows for it."""

from __future__ import annotations

import numpy as np

from border_cli.core.spaces import BoxSpace, DiscreteSpace, EnvSpec
from border_cli.core.types import Batch

LOW, HIGH = np.array([-2, 0], np.float32), np.array([2, 6], np.float32)
MIDDLE, HALF = (LOW + HIGH) / 2, (HIGH - LOW) / 2


def box(low: np.ndarray, high: np.ndarray) -> BoxSpace:
    return BoxSpace(shape=low.shape, dtype="float32", low=low, high=high)


def spec(observation: int = 3) -> EnvSpec:
    """Some numbers are seen; actions have two, from -2 to 2 and from 0 to 6."""
    seen = np.full(observation, np.inf, np.float32)
    return EnvSpec(
        id="Reach-v0", observation=box(-seen, seen), action=box(LOW, HIGH), max_episode_steps=9
    )


def counted() -> EnvSpec:
    """Three numbers are seen, one of three actions is taken."""
    seen = np.full(3, np.inf, np.float32)
    return EnvSpec(
        id="Count-v0", observation=box(-seen, seen), action=DiscreteSpace(3), max_episode_steps=9
    )


def batch(seed: int, rows: int = 8, *, actions: int | None = None) -> Batch:
    """Rows for `spec()`, or for one with so many Discrete actions."""
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
