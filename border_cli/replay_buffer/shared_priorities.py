"""Priorities of a data set and of what actors add, each of which has its share of every batch."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from border_cli.replay_buffer.sum_tree import Priorities


class SharedPriorities:
    """Two sets of priorities as one: of the slots of a data set, and of those behind them.

    Each part is drawn by its own priorities. Importance weights undo these and not the shares,
    which are meant: at beta 1 every row of a part counts as much as the others of that part. So a
    priority is told relative to the mean of its part, with N and sum p of the paper being that
    part's own.
    """

    def __init__(
        self, fixed: int, capacity: int, *, minimum: bool, count_of: Callable[[int], int]
    ) -> None:
        """`fixed`: slots of the data set. `count_of`: its rows in a batch of that size."""
        self._fixed = fixed
        self._count_of = count_of
        self._dataset = Priorities(fixed, minimum=minimum)
        self._others = Priorities(capacity, minimum=minimum)
        self._stored = 0  # rows of actors

    @property
    def nbytes(self) -> int:
        """Bytes of all trees."""
        return self._dataset.nbytes + self._others.nbytes

    def fill(self, start: int, end: int, value: float) -> None:
        """Sets the priorities of these slots, none of the data set, to the same number."""
        start, end = start - self._fixed, end - self._fixed
        self._others.fill(start, end, value)
        self._stored = max(self._stored, end)

    def set(self, index: NDArray[np.int64], value: NDArray[np.float64]) -> None:
        """Replaces the priorities of slots. [B], [B]"""
        others = index >= self._fixed
        self._dataset.set(index[~others], value[~others])
        self._others.set(index[others] - self._fixed, value[others])

    def first(self, count: int) -> NDArray[np.float64]:
        """Copies of the first priorities, all of the data set among them. [count]"""
        others = self._others.first(count - self._fixed)
        return np.concatenate([self._dataset.first(self._fixed), others])

    def load(self, values: NDArray[np.float64]) -> None:
        """Replaces all priorities: these from slot 0 on, and none behind them. [M]"""
        self._dataset.load(values[: self._fixed])
        self._others.load(values[self._fixed :])
        self._stored = len(values) - self._fixed

    def draw(self, chance: NDArray[np.float64]) -> NDArray[np.int64]:
        """Slots of the data set first, then as many others as are left, by numbers in 0 … 1. [B]"""
        count = self._count_of(len(chance))
        others = self._others.draw(chance[count:]) + self._fixed
        return np.concatenate([self._dataset.draw(chance[:count]), others])

    def drawn(self, index: NDArray[np.int64]) -> tuple[NDArray[np.float64], float]:
        """The priorities of a batch relative to the means of their parts, and the smallest. [B]"""
        count = self._count_of(len(index))
        parts = (
            (self._dataset, index[:count], self._fixed),
            (self._others, index[count:] - self._fixed, self._stored),
        )
        relative, smallest = [], []
        for part, slots, rows in parts:
            priority, least = part.drawn(slots)
            mean = part.sums.total / rows
            relative.append(priority / mean)
            smallest.append(least / mean)
        return np.concatenate(relative), min(smallest)
