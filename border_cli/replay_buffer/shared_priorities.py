"""Priorities for batches with fixed fractions from a data set and from the actors."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from border_cli.replay_buffer.sum_tree import Priorities


class SharedPriorities:
    """Two sets of priorities: for the slots of a data set and for the slots behind them.

    Each set is sampled by its own priorities. Importance weights correct for the priorities, not
    for the fractions of the batch: at beta 1, all transitions of a set count equally. Priorities
    are therefore relative to the mean of their set, to which the paper's N and sum p refer.
    """

    def __init__(
        self, fixed: int, capacity: int, *, minimum: bool, count_of: Callable[[int], int]
    ) -> None:
        """`fixed` is the number of the data set's slots; `count_of` returns how many of them are in
        a batch of a given size."""
        self._fixed = fixed
        self._count_of = count_of
        self._dataset = Priorities(fixed, minimum=minimum)
        self._others = Priorities(capacity, minimum=minimum)
        self._stored = 0  # transitions of actors

    @property
    def nbytes(self) -> int:
        """Bytes of all trees."""
        return self._dataset.nbytes + self._others.nbytes

    def fill(self, start: int, end: int, value: float) -> None:
        """Sets priorities[start:end], behind those of the data set, to the same number."""
        start, end = start - self._fixed, end - self._fixed
        self._others.fill(start, end, value)
        self._stored = max(self._stored, end)

    def set(self, index: NDArray[np.int64], value: NDArray[np.float64]) -> None:
        """Replaces the priorities of slots. [B], [B]"""
        others = index >= self._fixed
        self._dataset.set(index[~others], value[~others])
        self._others.set(index[others] - self._fixed, value[others])

    def first(self, count: int) -> NDArray[np.float64]:
        """Returns copies of the first priorities, beginning with those of the data set. [count]"""
        others = self._others.first(count - self._fixed)
        return np.concatenate([self._dataset.first(self._fixed), others])

    def load(self, values: NDArray[np.float64]) -> None:
        """Sets the first M priorities to `values` and clears the others. [M]"""
        self._dataset.load(values[: self._fixed])
        self._others.load(values[self._fixed :])
        self._stored = len(values) - self._fixed

    def draw(self, u: NDArray[np.float64]) -> NDArray[np.int64]:
        """Draws slots of the data set first, then other slots, with `u` uniform in [0, 1). [B]"""
        count = self._count_of(len(u))
        others = self._others.draw(u[count:]) + self._fixed
        return np.concatenate([self._dataset.draw(u[:count]), others])

    def priorities_of(self, index: NDArray[np.int64]) -> tuple[NDArray[np.float64], float]:
        """Returns the priorities of a batch and the smallest, relative to the means of their sets.
        [B]"""
        count = self._count_of(len(index))
        sets = (
            (self._dataset, index[:count], self._fixed),
            (self._others, index[count:] - self._fixed, self._stored),
        )
        relative, smallest = [], []
        for priorities, slots, stored in sets:
            priority, minimum = priorities.priorities_of(slots)
            mean = priorities.sums.total / stored
            relative.append(priority / mean)
            smallest.append(minimum / mean)
        return np.concatenate(relative), min(smallest)
