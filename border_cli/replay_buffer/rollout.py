"""The rollout of an on-policy agent, used for several epochs of minibatches and then discarded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from border_cli.core.interfaces import FrozenRows, RolloutStore
from border_cli.core.rows import copy_rows
from border_cli.core.seeding import restore_generator
from border_cli.core.spaces import EnvSpec
from border_cli.core.types import Batch, Column, State, Transitions
from border_cli.errors import RunFailed
from border_cli.replay_buffer.config import RolloutConfig
from border_cli.replay_buffer.ring import Ring
from border_cli.settings.run import ReplayBufferConfig


class RolloutBuffer(RolloutStore):
    """A rollout of `n_steps` steps of each environment; only the learner's thread calls it.

    `prepare` starts the epochs with columns computed by the agent, such as advantages. Checkpoints
    contain the rollout, even if incomplete, these columns, and the position within an epoch.
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
        """`num_envs` is the number of environments of all actors."""
        self.size = config.n_steps * num_envs  # env steps of a complete rollout
        self._spec, self._extras = spec, extras
        # The last steps of the actors may exceed the size.
        self._ring = Ring(spec, self.size + 2 * num_envs, extras=extras)
        self._rng = rng
        self._n_epochs = config.n_epochs
        self._columns: dict[str, NDArray[Any]] = {}  # [M, …] each, from `prepare`
        self._order = np.empty(0, np.int64)  # [M]  shuffled transitions of this epoch
        self._position = 0  # position in `_order`
        self._epochs = 0  # completed epochs

    @classmethod
    def row_nbytes(
        cls,
        config: ReplayBufferConfig,  # noqa: ARG003 - independent of the settings
        spec: EnvSpec,
        extras: Sequence[Column] = (),
    ) -> int:
        return Ring.row_nbytes(spec, extras)

    def push(self, transitions: Transitions) -> None:
        if self.prepared or len(self) + len(transitions) > self.capacity:
            raise RunFailed(f"the rollout has no space for {len(transitions)} more transitions")
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
        return copy_rows(self._ring.gather(index))

    def rollout(self) -> Transitions:
        return self.rows(self._find_slots(np.arange(len(self))))

    def _find_slots(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        return self._ring.slots_of(self._ring.pushed - self._ring.size + rows)

    def prepare(self, columns: Mapping[str, NDArray[Any]]) -> None:
        self._columns = dict(columns)
        self._epochs = 0
        self._shuffle()

    def _shuffle(self) -> None:
        self._order, self._position = self._rng.permutation(len(self)), 0

    def sample(self, batch_size: int) -> Batch:
        """Returns the next minibatch, extended if only one transition would remain."""
        end = self._position + batch_size
        if end >= len(self._order) - 1:
            end = len(self._order)
        rows = self._order[self._position : end]
        batch = self._ring.gather(self._find_slots(rows))
        columns = {name: column[rows] for name, column in self._columns.items()}
        batch = replace(batch, extras={**batch.extras, **columns})
        self._position = end
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
        self._order, self._position = np.empty(0, np.int64), 0
        self._ring.clear()

    def freeze(self, first: int) -> FrozenRows:
        return self._ring.freeze(first)

    def state_dict(self) -> State:
        return {
            **self._ring.state,
            "generator": self._rng.bit_generator.state,
            "columns": {name: column.copy() for name, column in self._columns.items()},
            "order": self._order.copy(),
            "at": self._position,
            "epochs": self._epochs,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        if state["size"] > self.capacity:  # saved with more actors
            self._ring = Ring(self._spec, state["size"], extras=self._extras)
        self._ring.restore(state)
        restore_generator(self._rng, state["generator"])
        self._columns, self._order = dict(state["columns"]), state["order"]
        self._position, self._epochs = int(state["at"]), int(state["epochs"])

    def load_rows(self, first: int, chunk: list[NDArray[Any]]) -> None:
        self._ring.restore_rows(first, chunk)
