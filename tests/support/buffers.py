"""Builds replay buffers, and copies their rows as a checkpoint does."""

from __future__ import annotations

from typing import Any

import numpy as np

from border_cli.core.spaces import EnvSpec
from border_cli.replay_buffer.config import Normalize, PrioritizedConfig, UniformConfig
from border_cli.replay_buffer.prioritized import PrioritizedReplayBuffer
from border_cli.replay_buffer.uniform import UniformReplayBuffer


def buffer_of(
    kind: str, spec: EnvSpec, capacity: int, *, seed: int = 0, frames: bool | None = None
) -> Any:
    """Builds a buffer; kinds are "uniform" and the `Normalize` modes of a prioritized buffer."""
    rng = np.random.default_rng(seed)
    if kind == "uniform":
        config = UniformConfig(capacity=capacity, frames=frames)
        return UniformReplayBuffer(config, spec=spec, rng=rng)
    prioritized = PrioritizedConfig(
        capacity=capacity, frames=frames, normalize=Normalize(kind), beta={"steps": 50}
    )
    return PrioritizedReplayBuffer(prioritized, spec=spec, rng=rng)


def copy_rows(source: Any, target: Any, chunk_nbytes: int) -> None:
    """Copies all rows to another buffer in chunks, as a checkpoint saves and loads them."""
    frozen = source.ring.freeze(0, chunk_nbytes=chunk_nbytes)
    first = frozen.first
    while (blocks := frozen.take()) is not None:
        target.load_rows(first, blocks)
        first += len(blocks[-1])
