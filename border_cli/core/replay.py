"""What the learner learns from, and what of it goes to the disk."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from border_cli.core.types import Batch, State, Transitions


class FrozenRows(Protocol):
    """Rows as they were at one moment, however many are pushed afterwards.

    Rows are numbered from the first one ever pushed. Made by the learner's thread, read by the one
    that writes; the buffer takes care of those that it is about to overwrite.
    """

    @property
    def first(self) -> int:
        """The number of the first row."""

    @property
    def end(self) -> int:
        """The number behind the last row."""

    def take(self, max_rows: int) -> list[NDArray[Any]] | None:
        """Copies of the next rows, at most so many: one array per block. None once all are taken.

        Blocks are structured arrays; their number and types are always the same for one buffer.
        """

    def release(self) -> None:
        """Gives up what was not taken; may be called twice, by any thread."""


class ReplayBuffer(ABC):
    """Rows to learn from; only the learner's thread calls it."""

    @abstractmethod
    def push(self, transitions: Transitions) -> None:
        """Copies the rows in, over the oldest where it is full."""

    @abstractmethod
    def sample(self, batch_size: int) -> Batch:
        """Draws rows with replacement. The batch's arrays are reused by the next call."""

    @abstractmethod
    def rows(self, index: NDArray[np.int64]) -> Transitions:
        """Copies of the rows in these slots, for whoever looks in. [M]"""

    @abstractmethod
    def __len__(self) -> int:
        """Rows stored now."""

    @property
    @abstractmethod
    def capacity(self) -> int:
        """Rows it can hold."""

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """Bytes allocated."""

    @property
    @abstractmethod
    def rows_pushed(self) -> int:
        """Rows ever pushed; those from `first_pushed` on are stored."""

    @property
    def first_pushed(self) -> int:
        """The number of the oldest row that is stored. Rows that were there from the start, as
        those of a data set, have no number, and no checkpoint holds them."""
        return self.rows_pushed - len(self)

    @abstractmethod
    def freeze(self, first: int) -> FrozenRows:
        """The stored rows from number `first` on (or the oldest stored, if that is later).

        Ends what an earlier call froze.
        """

    @abstractmethod
    def state_dict(self) -> State:
        """All but the rows: what they are numbered, priorities, generators."""

    @abstractmethod
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores what `state_dict` gave; the rows follow by `load_rows`."""

    @abstractmethod
    def load_rows(self, first: int, blocks: Sequence[NDArray[Any]]) -> None:
        """Puts rows numbered from `first` on back in their slots; raises CheckpointError where
        they are not of this buffer's form."""

    @property
    def uses_priorities(self) -> bool:
        """Whether `update_priorities` should be called after each update."""
        return False

    def update_priorities(self, index: NDArray[np.int64], td_error: NDArray[Any]) -> None:  # noqa: B027
        """Tells how wrong the sampled rows were. [B], [B]"""

    @property
    def follows_run(self) -> bool:
        """Whether `follow` should be called before each sample."""
        return False

    def follow(self, done: float) -> None:  # noqa: B027
        """Tells which share of the run is done, 0 to 1, for schedules that end with it."""
