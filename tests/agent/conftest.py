"""Small environments in words, and batches of random rows for them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from border_cli.core.spaces import BoxSpace, DiscreteSpace, EnvSpec
from border_cli.core.types import Batch

MakeBatch = Callable[..., Batch]


@pytest.fixture
def spec() -> EnvSpec:
    """Three numbers are seen, two actions can be taken."""
    low, high = np.full(3, -np.inf, np.float32), np.full(3, np.inf, np.float32)
    observation = BoxSpace(shape=(3,), dtype="float32", low=low, high=high)
    return EnvSpec(
        id="Tiny-v0", observation=observation, action=DiscreteSpace(2), max_episode_steps=9
    )


@pytest.fixture
def make_batch() -> MakeBatch:
    def make(seed: int, rows: int = 8) -> Batch:
        rng = np.random.default_rng(seed)
        ended = rng.random(rows) < 0.3
        return Batch(
            obs=rng.standard_normal((rows, 3)).astype(np.float32),
            action=rng.integers(2, size=rows),
            reward=rng.normal(0, 2, rows).astype(np.float32),
            discount=np.where(ended, 0, 0.9).astype(np.float32),
            next_obs=rng.standard_normal((rows, 3)).astype(np.float32),
            weight=rng.random(rows).astype(np.float32),
            index=np.arange(rows),
        )

    return make
