"""Prioritized experience replay, proportional variant.

Schaul, Quan, Antonoglou and Silver 2016, "Prioritized experience replay", Algorithm 1. Transitions
of a data set have priorities as well, which are 1 until they are sampled for the first time.
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
EPSILON = 1e-6  # lets transitions with a TD error of 0 be sampled


def importance_weights(
    priority: NDArray[np.float64], smallest: float, beta: float
) -> NDArray[np.float64]:
    """Returns (N p_i / sum p)^-beta, divided by the weight of the smallest priority.  [B]

    N and the sum cancel out. The weights correct the sampling bias once: the agent multiplies the
    loss of each transition by its weight and does not square the weight.
    """
    weights: NDArray[np.float64] = (smallest / priority) ** beta
    return weights


class PrioritizedReplayBuffer(RingReplayBuffer):
    """A ring of transitions sampled by priority; only the learner's thread calls it.

    A new transition gets the largest priority so far. If a transition is overwritten between
    `sample` and `update_priorities`, its new priority applies to the transition now in its slot,
    until that is sampled.
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
        self.updates = 0  # number of priority updates, a possible counter of the beta schedule
        self._run_fraction = 0.0  # completed fraction of the run
        self.max_priority = 1.0  # largest priority seen so far
        self._priorities = self._make_priorities()
        self._loaded = np.empty(0)  # saved priorities, until the transitions are restored

    def _make_priorities(self) -> Priorities | SharedPriorities:
        """Builds the priorities, and initialises those of the data set."""
        ring, minimum = self.ring, self.config.normalize == Normalize.buffer
        priorities: Priorities | SharedPriorities
        if self._has_shares:
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
        """Returns the bytes of a transition and its priority, which a minimum tree stores again;
        inner nodes (1/31 of that) are not counted."""
        assert isinstance(config, PrioritizedConfig)
        trees = 2 if config.normalize == Normalize.buffer else 1
        return super().row_nbytes(config, spec, extras) + trees * PRIORITY_NBYTES

    @property
    def uses_priorities(self) -> bool:
        return True

    def update_schedules(self, done: float) -> None:
        self._run_fraction = done

    @property
    def beta(self) -> float:
        """The exponent of the importance weights of the next sample. If its schedule spans the run,
        resuming with higher limits lowers it."""
        return value_at(self._beta, self.updates, self._run_fraction)

    def push(self, transitions: Transitions) -> None:
        fixed = self.ring.fixed
        for start, end in self.ring.push(transitions):
            self._priorities.fill(fixed + start, fixed + end, self.max_priority)

    def sample(self, batch_size: int) -> Batch:
        """Draws one transition from each of B equal slices of the total priority.

        If the data set has a share, it is sampled separately from the transitions of the actors.
        Raises `RunFailed` if the buffer is empty.
        """
        self.ring.require_rows(batch_size, of_actors=self._has_shares)
        index = self._priorities.draw(self._rng.random(batch_size))
        batch = self.ring.gather(index)
        batch.weight[:] = importance_weights(*self._priorities.priorities_of(index), self.beta)
        return batch

    def update_priorities(self, index: NDArray[np.int64], td_error: NDArray[Any]) -> None:
        """Sets the priorities of the slots to (|td_error| + epsilon)^alpha. [B], [B]

        Raises `NotFinite` and changes nothing if an error is NaN or infinite.
        """
        error = np.abs(td_error, dtype=np.float64)
        largest = int(error.argmax())  # index of the first NaN, if there is one
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
            "priorities": self._priorities.first(len(self)),  # [stored]  in slot order
            "updates": self.updates,
            "max_priority": self.max_priority,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self.updates, self.max_priority = state["updates"], state["max_priority"]
        self._loaded = state["priorities"]
        self._priorities.load(self._loaded[: self.ring.fixed])

    def _finish_restore(self) -> None:
        self._priorities.load(self._loaded)
        self._loaded = np.empty(0)
