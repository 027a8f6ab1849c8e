"""Prioritized experience replay, proportional variant.

Schaul, Quan, Antonoglou and Silver 2016, "Prioritized experience replay", Algorithm 1. The rows of
a data set have priorities like all others, 1 before they are first drawn.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from border_cli.core.spaces import EnvSpec
from border_cli.core.types import Batch, Column, State, Transitions
from border_cli.errors import NotFinite
from border_cli.replay_buffer.config import Normalize, PrioritizedConfig
from border_cli.replay_buffer.sum_tree import Priorities
from border_cli.replay_buffer.uniform import RingReplayBuffer
from border_cli.settings.run import ReplayBufferConfig
from border_cli.settings.schedule import schedule_of, value_at

if TYPE_CHECKING:
    from border_cli.replay_buffer.dataset import DatasetRows
    from border_cli.replay_buffer.shared_priorities import SharedPriorities

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
        self,
        config: PrioritizedConfig,
        *,
        spec: EnvSpec,
        rng: np.random.Generator,
        extras: Sequence[Column] = (),
        dataset: DatasetRows | None = None,
    ) -> None:
        super().__init__(config, spec=spec, rng=rng, extras=extras, dataset=dataset)
        self.config = config
        self._beta = schedule_of(config.beta)
        self.updates = 0  # calls of `update_priorities`; beta follows it, or the run
        self._done = 0.0  # share of the run
        self.max_priority = 1.0  # seen so far
        self._priorities = self._new_priorities()
        self._loaded = np.empty(0)  # priorities of rows that are not restored yet

    def _new_priorities(self) -> Priorities | SharedPriorities:
        """One for each row of the data set, none for others yet."""
        ring, minimum = self.ring, self.config.normalize == Normalize.buffer
        priorities: Priorities | SharedPriorities
        if self._shared:
            from border_cli.replay_buffer.shared_priorities import SharedPriorities

            assert self._dataset is not None
            priorities = SharedPriorities(
                ring.fixed, ring.capacity, minimum=minimum, count_of=self._dataset.count_of
            )
        else:
            priorities = Priorities(ring.fixed + ring.capacity, minimum=minimum)
        if ring.fixed:
            priorities.load(np.full(ring.fixed, self.max_priority))
        return priorities

    @classmethod
    def row_nbytes(
        cls, config: ReplayBufferConfig, spec: EnvSpec, extras: Sequence[Column] = ()
    ) -> int:
        """With its priority, twice for the minimum over the buffer; sums add a 31st of that."""
        assert isinstance(config, PrioritizedConfig)
        trees = 2 if config.normalize == Normalize.buffer else 1
        return super().row_nbytes(config, spec, extras) + trees * PRIORITY_NBYTES

    @property
    def uses_priorities(self) -> bool:
        return True

    def follow(self, done: float) -> None:
        self._done = done

    @property
    def beta(self) -> float:
        """The exponent of the importance weights of the next sample. Where it ends with the run, a
        resume that raises the limits lowers it."""
        return value_at(self._beta, self.updates, self._done)

    def push(self, transitions: Transitions) -> None:
        fixed = self.ring.fixed
        for start, end in self.ring.push(transitions):
            self._priorities.fill(fixed + start, fixed + end, self.max_priority)

    def sample(self, batch_size: int) -> Batch:
        """Draws one row from each of B equal slices of the total priority; of a data set with a
        share, and of all else, as many as they have rows in the batch.

        Raises `RunFailed` while empty.
        """
        self.ring.require_rows(batch_size, of_actors=self._shared)
        index = self._priorities.draw(self._rng.random(batch_size))
        batch = self.ring.gather(index)
        batch.weight[:] = importance_weights(*self._priorities.drawn(index), self.beta)
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
        self._priorities.set(index, priority)

    @property
    def nbytes(self) -> int:
        return super().nbytes + self._priorities.nbytes

    def state_dict(self) -> State:
        return {
            **super().state_dict(),
            "priorities": self._priorities.first(
                len(self)
            ),  # [rows stored], in the order of the slots
            "updates": self.updates,
            "max_priority": self.max_priority,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self.updates, self.max_priority = state["updates"], state["max_priority"]
        self._loaded = state["priorities"]
        self._priorities.load(self._loaded[: self.ring.fixed])

    def _rows_restored(self) -> None:
        self._priorities.load(self._loaded)
        self._loaded = np.empty(0)
