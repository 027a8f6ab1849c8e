"""What every replay buffer over a ring of rows has, however it samples."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from border_cli.core.replay import ReplayBuffer
from border_cli.core.spaces import EnvSpec
from border_cli.core.types import Transitions
from border_cli.replay_buffer.storage import Ring


class RingReplayBuffer(ReplayBuffer):
    """Owns the ring of rows and the generator that draws from it."""

    def __init__(self, capacity: int, *, spec: EnvSpec, rng: np.random.Generator) -> None:
        self.ring = Ring(spec, capacity)
        self._rng = rng

    def rows(self, index: NDArray[np.int64]) -> Transitions:
        """Copies of the rows in these slots, for whoever looks in. [M]"""
        return self.ring.read(index)

    def __len__(self) -> int:
        return self.ring.size

    @property
    def capacity(self) -> int:
        return self.ring.capacity

    @property
    def nbytes(self) -> int:
        return self.ring.nbytes
