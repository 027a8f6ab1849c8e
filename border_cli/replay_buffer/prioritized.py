"""Prioritized experience replay, proportional variant.

Schaul, Quan, Antonoglou and Silver 2016, "Prioritized experience replay", Algorithm 1.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from border_cli.core.spaces import EnvSpec
from border_cli.core.types import Batch, State, Transitions
from border_cli.errors import NotFinite
from border_cli.replay_buffer.config import Normalize, PrioritizedConfig
from border_cli.replay_buffer.sum_tree import MinTree, SumTree
from border_cli.replay_buffer.uniform import RingReplayBuffer, stores_frames
from border_cli.settings.run import ReplayBufferConfig

PRIORITY_NBYTES = 8  # float64
EPSILON = 1e-6  # keeps rows without an error within reach


def importance_weights(
    priority: NDArray[np.float64], smallest: float, beta: float
) -> NDArray[np.float64]:
    """(N p_i / sum p)^-beta, divided by the same for the smallest priority.  [B]

    N and the sum cancel. The weights undo the bias of the sampling once: the agent multiplies
    each row's loss by its weight and does not square it.
    """
    weights: NDArray[np.float64] = (smallest / priority) ** beta
    return weights


class PrioritizedReplayBuffer(RingReplayBuffer):
    """Owns its rows, their priorities and its generator; only the learner's thread calls it.

    A new row gets the largest priority seen so far. A row that was overwritten between `sample`
    and `update_priorities` leaves its priority to the row now in its slot, until that is sampled.
    """

    def __init__(
        self, config: PrioritizedConfig, *, spec: EnvSpec, rng: np.random.Generator
    ) -> None:
        super().__init__(config.capacity, spec=spec, rng=rng, frames=stores_frames(config, spec))
        self.config = config
        self.updates = 0  # calls of `update_priorities`; beta follows it, or the run
        self._done = 0.0  # share of the run
        self.max_priority = 1.0  # seen so far
        self._sums = SumTree(config.capacity)
        in_buffer = config.normalize == Normalize.buffer
        self._minima = MinTree(config.capacity) if in_buffer else None
        self._loaded = np.empty(0)  # priorities of rows that are not restored yet

    @classmethod
    def row_nbytes(cls, config: ReplayBufferConfig, spec: EnvSpec) -> int:
        """With its priority, twice for the minimum over the buffer; sums add a 31st of that."""
        assert isinstance(config, PrioritizedConfig)
        trees = 2 if config.normalize == Normalize.buffer else 1
        return super().row_nbytes(config, spec) + trees * PRIORITY_NBYTES

    @property
    def uses_priorities(self) -> bool:
        return True

    def follow(self, done: float) -> None:
        self._done = done

    @property
    def beta(self) -> float:
        """The exponent of the importance weights of the next sample. Where it ends with the run, a
        resume that raises the limits lowers it."""
        steps = self.config.n_opts_final
        done = self._done if steps is None else min(1.0, self.updates / steps)
        return (1 - done) * self.config.beta_0 + done * self.config.beta_final

    def push(self, transitions: Transitions) -> None:
        for start, end in self.ring.push(transitions):
            self._sums.fill(start, end, self.max_priority)
            if self._minima:
                self._minima.fill(start, end, self.max_priority)

    def sample(self, batch_size: int) -> Batch:
        """Draws one row from each of B equal slices of the total priority.

        Raises `RunFailed` while empty.
        """
        self.ring.require_rows(batch_size)
        slice_mass = self._sums.total / batch_size
        mass = (np.arange(batch_size) + self._rng.random(batch_size)) * slice_mass  # [B]
        index = self._sums.find(mass)
        batch = self.ring.gather(index)
        priority = self._sums.get(index)  # [B]
        smallest = self._minima.smallest if self._minima else float(priority.min())
        batch.weight[:] = importance_weights(priority, smallest, self.beta)
        return batch

    def update_priorities(self, index: NDArray[np.int64], td_error: NDArray[Any]) -> None:
        """Sets the priorities of the slots to (|td_error| + epsilon)^alpha. [B], [B]

        Raises `NotFinite` and changes nothing where an error is a NaN or an infinity.
        """
        error = np.abs(td_error, dtype=np.float64)
        largest = int(error.argmax())  # of the first NaN, where there is one
        if not math.isfinite(error[largest]):
            raise NotFinite(
                f"td_error is {td_error[largest]} in row {largest} of the batch (slot "
                f"{index[largest]} of the replay buffer), update {self.updates + 1}"
            )
        priority = (error + EPSILON) ** self.config.alpha
        self.updates += 1
        self.max_priority = max(self.max_priority, float(priority[largest]))
        self._sums.set(index, priority)
        if self._minima:
            self._minima.set(index, priority)

    @property
    def nbytes(self) -> int:
        minima = self._minima.nbytes if self._minima else 0
        return super().nbytes + self._sums.nbytes + minima

    def state_dict(self) -> State:
        return {
            **super().state_dict(),
            "priorities": self._sums.first(len(self)),  # [rows stored], in the order of the slots
            "updates": self.updates,
            "max_priority": self.max_priority,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self.updates, self.max_priority = state["updates"], state["max_priority"]
        self._set_all_priorities(np.empty(0))
        self._loaded = state["priorities"]

    def _rows_restored(self) -> None:
        self._set_all_priorities(self._loaded)
        self._loaded = np.empty(0)

    def _set_all_priorities(self, priorities: NDArray[np.float64]) -> None:
        # Every parent depends on its leaves alone, so the trees are the same as before, to the bit.
        self._sums.load(priorities)
        if self._minima:
            self._minima.load(priorities)
