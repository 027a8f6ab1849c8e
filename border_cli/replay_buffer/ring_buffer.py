"""What every replay buffer over a ring of rows has, however it samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from border_cli.core.errors import CheckpointError
from border_cli.core.interfaces import FrozenRows, ReplayBuffer
from border_cli.core.seeding import restore_generator
from border_cli.core.spaces import EnvSpec
from border_cli.core.types import State, Transitions
from border_cli.replay_buffer.ring_state import ring_state
from border_cli.replay_buffer.storage import Ring


class RingReplayBuffer(ReplayBuffer):
    """Owns the ring of rows and the generator that draws from it.

    A state without its rows gives an empty buffer that goes on counting and drawing from there.
    """

    def __init__(
        self, capacity: int, *, spec: EnvSpec, rng: np.random.Generator, most_fixed: int = 0
    ) -> None:
        self.ring = Ring(spec, capacity, most_fixed=most_fixed)
        self._rng = rng

    def rows(self, index: NDArray[np.int64]) -> Transitions:
        """Copies of the rows in these slots, for whoever looks in. [M]"""
        return self.ring.read(index)

    def __len__(self) -> int:
        return self.ring.stored

    @property
    def capacity(self) -> int:
        return self.ring.fixed + self.ring.capacity

    @property
    def nbytes(self) -> int:
        return self.ring.nbytes

    @property
    def rows_pushed(self) -> int:
        return self.ring.pushed

    @property
    def first_pushed(self) -> int:
        return self.ring.pushed - self.ring.size

    def freeze(self, first: int) -> FrozenRows:
        return self.ring.freeze(first)

    def state_dict(self) -> State:
        return {**self.ring.state.state_dict(), "generator": self._rng.bit_generator.state}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        generator = state.get("generator")
        if not isinstance(generator, Mapping):
            raise CheckpointError("the saved replay buffer has no random generator")
        self.ring.restore(ring_state(state))
        restore_generator(self._rng, generator)

    def load_rows(self, first: int, blocks: Sequence[NDArray[Any]]) -> None:
        if self.ring.put(first, blocks):
            self._rows_are_back()

    def _rows_are_back(self) -> None:
        """All rows of a loaded state are stored again."""
