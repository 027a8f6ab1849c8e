"""The newest rows of a policy, used for some epochs of shuffled minibatches and then dropped."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from border_cli.core.interfaces import FrozenRows, RolloutStore
from border_cli.core.rows import copied_rows
from border_cli.core.seeding import restore_generator
from border_cli.core.spaces import EnvSpec
from border_cli.core.types import Batch, Column, State, Transitions
from border_cli.errors import RunFailed
from border_cli.replay_buffer.config import RolloutConfig
from border_cli.replay_buffer.ring import Ring, RingState
from border_cli.settings.run import ReplayBufferConfig


class RolloutBuffer(RolloutStore):
    """A rollout: `n_steps` steps of each environment; only the learner's thread calls it.

    `prepare` begins the epochs, with columns that the agent has computed for them. Rows that
    arrive, minibatches and columns are in every checkpoint, and so is the place in the epoch.
    """

    def __init__(
        self,
        config: RolloutConfig,
        *,
        spec: EnvSpec,
        rng: np.random.Generator,
        extras: Sequence[Column],
        num_envs: int,
    ) -> None:
        """`num_envs`: of all actors."""
        self.size = config.n_steps * num_envs  # env steps that complete it
        # The last round of the actors may bring more.
        self._ring = Ring(spec, self.size + 2 * num_envs, extras=extras)
        self._rng = rng
        self._n_epochs = config.n_epochs
        self._columns: dict[str, NDArray[Any]] = {}  # [M, …] each, of the agent; none: not prepared
        self._order = np.empty(0, np.int64)  # [M]  the rows of this epoch, shuffled
        self._at = 0  # rows of `_order` that were used
        self._epochs = 0  # that are over

    @classmethod
    def row_nbytes(
        cls,
        config: ReplayBufferConfig,  # noqa: ARG003 - the same with all settings
        spec: EnvSpec,
        extras: Sequence[Column] = (),
    ) -> int:
        return Ring.row_nbytes(spec, extras)

    def push(self, transitions: Transitions) -> None:
        if self.prepared or len(self) + len(transitions) > self.capacity:
            raise RunFailed(f"{len(transitions)} rows have arrived that no rollout has space for")
        self._ring.push(transitions)

    def __len__(self) -> int:
        return self._ring.size

    @property
    def capacity(self) -> int:
        return self._ring.capacity

    @property
    def nbytes(self) -> int:
        return self._ring.nbytes

    @property
    def prepared(self) -> bool:
        return bool(self._columns)

    def rows(self, index: NDArray[np.int64]) -> Transitions:
        return copied_rows(self._ring.gather(index))

    def rollout(self) -> Transitions:
        return self.rows(self._slots(np.arange(len(self))))

    def _slots(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        return self._ring.slots_of(self._ring.pushed - self._ring.size + rows)

    def prepare(self, columns: Mapping[str, NDArray[Any]]) -> None:
        self._columns = dict(columns)
        self._epochs = 0
        self._shuffle()

    def _shuffle(self) -> None:
        self._order, self._at = self._rng.permutation(len(self)), 0

    def sample(self, batch_size: int) -> Batch:
        """The next minibatch; a last one of a single row joins the one before."""
        end = self._at + batch_size
        if end >= len(self._order) - 1:
            end = len(self._order)
        rows = self._order[self._at : end]
        batch = self._ring.gather(self._slots(rows))
        columns = {name: column[rows] for name, column in self._columns.items()}
        batch = replace(batch, extras={**batch.extras, **columns})
        self._at = end
        if end == len(self._order):
            self._epochs += 1
            if self._epochs < self._n_epochs:
                self._shuffle()
        return batch

    @property
    def used_up(self) -> bool:
        return self._epochs == self._n_epochs

    def drop(self) -> None:
        self._columns, self._epochs = {}, 0
        self._order, self._at = np.empty(0, np.int64), 0
        self._ring.clear()

    def freeze(self, first: int) -> FrozenRows:
        return self._ring.freeze(first)

    def state_dict(self) -> State:
        return {
            **asdict(self._ring.state),
            "generator": self._rng.bit_generator.state,
            "columns": {name: column.copy() for name, column in self._columns.items()},
            "order": self._order.copy(),
            "at": self._at,
            "epochs": self._epochs,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._ring.restore(RingState(**{each.name: state[each.name] for each in fields(RingState)}))
        restore_generator(self._rng, state["generator"])
        self._columns, self._order = dict(state["columns"]), state["order"]
        self._at, self._epochs = int(state["at"]), int(state["epochs"])

    def load_rows(self, first: int, chunk: list[NDArray[Any]]) -> None:
        self._ring.restore_rows(first, chunk)
