"""Replay with every row equally likely (Lin 1992)."""

from __future__ import annotations

import numpy as np

from border_cli.core.spaces import EnvSpec
from border_cli.core.types import Batch, Transitions
from border_cli.replay_buffer.config import UniformConfig
from border_cli.replay_buffer.ring_buffer import RingReplayBuffer


class UniformReplayBuffer(RingReplayBuffer):
    """Owns its rows and its generator; only the learner's thread calls it."""

    def __init__(self, config: UniformConfig, *, spec: EnvSpec, rng: np.random.Generator) -> None:
        super().__init__(config.capacity, spec=spec, rng=rng)

    def push(self, transitions: Transitions) -> None:
        self.ring.push(transitions)

    def sample(self, batch_size: int) -> Batch:
        """Draws with replacement; raises `RunFailed` while empty. Weights are 1."""
        self.ring.require_rows(batch_size)
        return self.ring.gather(self._rng.integers(0, self.ring.size, batch_size))
