"""Trees over the priorities of a replay buffer: their sum, a search by sum, and their minimum.

Each node has 32 children, which numpy reduces in one call for all nodes that a batch touches.
The search accumulates the top level, of up to 1,024 nodes, in one go, so that a million leaves
need only two levels below it. Parents are always recomputed from their children, never
incremented, so nothing drifts.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

SHIFT = 5
FANOUT = 1 << SHIFT
TOP = FANOUT * FANOUT  # most nodes of the top level


class BlockTree:
    """One float64 per index, and for each block of 32 its reduction, level by level."""

    def __init__(self, capacity: int, reduction: np.ufunc, neutral: float) -> None:
        self.capacity = capacity
        self._reduction = reduction
        self._neutral = neutral
        self._levels: list[NDArray[np.float64]] = []  # leaves first
        self._blocks: list[NDArray[np.float64]] = []  # of each level but the top: [nodes, 32]
        nodes = capacity
        while nodes > TOP:
            parents = -(-nodes // FANOUT)
            level = _constant(parents * FANOUT, neutral)
            self._levels.append(level)
            self._blocks.append(level.reshape(parents, FANOUT))
            nodes = parents
        self._levels.append(_constant(nodes, neutral))
        self._leaves = self._levels[0][:capacity]

    @property
    def nbytes(self) -> int:
        """Bytes of all levels."""
        return sum(level.nbytes for level in self._levels)

    def get(self, index: NDArray[np.integer[Any]]) -> NDArray[np.float64]:
        """The values at `index`. [B] float64"""
        values: NDArray[np.float64] = self._leaves[index]
        return values

    def set(self, index: NDArray[np.integer[Any]], value: NDArray[np.float64]) -> None:
        """Replaces the values at `index` [B]; of a repeated index the last value stays."""
        self._leaves[index] = value
        for blocks, parents in zip(self._blocks, self._levels[1:], strict=True):
            index = index >> SHIFT
            # Parents of neighbours are computed twice, to the same number.
            children = blocks.take(index, axis=0, mode="clip")  # [B, 32]
            parents[index] = self._reduction.reduce(children, axis=1)

    def fill(self, start: int, end: int, value: float) -> None:
        """Sets the values from `start` to before `end`, at least one, to the same number."""
        self._leaves[start:end] = value
        for blocks, parents in zip(self._blocks, self._levels[1:], strict=True):
            start, end = start >> SHIFT, ((end - 1) >> SHIFT) + 1
            self._reduction.reduce(blocks[start:end], axis=1, out=parents[start:end])

    def first(self, count: int) -> NDArray[np.float64]:
        """Copies of the first values. [count]"""
        return self._leaves[:count].copy()

    def load(self, values: NDArray[np.float64]) -> None:
        """Replaces all values: these from index 0 on, and the neutral one behind them. [M]"""
        self._leaves[: len(values)] = values
        self._leaves[len(values) :] = self._neutral
        for blocks, parents in zip(self._blocks, self._levels[1:], strict=True):
            self._reduction.reduce(blocks, axis=1, out=parents[: len(blocks)])

    def root(self) -> float:
        """The reduction of everything."""
        return float(self._reduction.reduce(self._levels[-1]))


class MinTree(BlockTree):
    """The smallest value; infinity where none was set."""

    def __init__(self, capacity: int) -> None:
        super().__init__(capacity, np.minimum, np.inf)

    @property
    def smallest(self) -> float:
        return self.root()


class SumTree(BlockTree):
    """Values of at least 0, their total, and the search for an index by cumulative sum."""

    def __init__(self, capacity: int) -> None:
        super().__init__(capacity, np.add, 0.0)
        self._cumulative = np.zeros(len(self._levels[-1]) + 1)  # [1 + top nodes], begins with 0
        self._scratch = _Descent(0)

    @property
    def total(self) -> float:
        return self.root()

    def find(self, mass: NDArray[np.float64]) -> NDArray[np.int64]:
        """The index within whose share of the total each mass falls. [B], each at least 0

        Never an index of value 0, whatever rounding does: before each choice a mass is cut to
        just below the sum of what can be chosen. Raises ValueError where the total is 0.
        """
        ends = self._cumulative[1:]  # [top nodes]
        np.add.accumulate(self._levels[-1], out=ends)
        if not ends[-1] > 0:
            raise ValueError("nothing to find: every value of the tree is 0")
        rest = np.minimum(mass, np.nextafter(ends[-1], 0.0))  # [B]
        # [B]  the first whose end lies above
        node: NDArray[np.int64] = ends.searchsorted(rest, side="right")
        rest -= self._cumulative.take(node)
        if len(self._scratch.offset) != len(mass):
            self._scratch = _Descent(len(mass))
        for blocks in reversed(self._blocks):
            child = self._scratch.choose(blocks, node, rest)
            node <<= SHIFT
            node += child
        return node


class Priorities:
    """The priorities of slots, which are drawn in proportion, and the smallest one."""

    def __init__(self, capacity: int, *, minimum: bool) -> None:
        """`minimum`: knows the smallest of all, else that of a batch."""
        self.sums = SumTree(capacity)
        self.minima = MinTree(capacity) if minimum else None
        self._trees: list[BlockTree] = [self.sums, *([self.minima] if self.minima else [])]

    @property
    def nbytes(self) -> int:
        """Bytes of all trees."""
        return sum(each.nbytes for each in self._trees)

    def fill(self, start: int, end: int, value: float) -> None:
        """Sets the priorities of these slots, at least one, to the same number."""
        for each in self._trees:
            each.fill(start, end, value)

    def set(self, index: NDArray[np.int64], value: NDArray[np.float64]) -> None:
        """Replaces the priorities of slots. [B], [B]"""
        for each in self._trees:
            each.set(index, value)

    def first(self, count: int) -> NDArray[np.float64]:
        """Copies of the first priorities. [count]"""
        return self.sums.first(count)

    def load(self, values: NDArray[np.float64]) -> None:
        """Replaces all priorities: these from slot 0 on, and none behind them. [M]"""
        # Every parent depends on its leaves alone, so the trees are the same as before, to the bit.
        for each in self._trees:
            each.load(values)

    def draw(self, chance: NDArray[np.float64]) -> NDArray[np.int64]:
        """One slot from each of B equal slices of the total, by numbers in 0 … 1. [B]"""
        slice_mass = self.sums.total / len(chance)
        return self.sums.find((np.arange(len(chance)) + chance) * slice_mass)

    def drawn(self, index: NDArray[np.int64]) -> tuple[NDArray[np.float64], float]:
        """The priorities of a batch up to a common factor, and the smallest one. [B]"""
        priority = self.sums.get(index)
        return priority, self.minima.smallest if self.minima else float(priority.min())


class _Descent:
    """One step down for B nodes at once, and the arrays it needs."""

    def __init__(self, batch_size: int) -> None:
        self.offset = np.arange(batch_size) * (FANOUT + 1)  # [B]  of each row of `_cumulative`
        self._children = np.empty((batch_size, FANOUT))
        self._cumulative = np.zeros((batch_size, FANOUT + 1))  # begins with 0
        self._ends = self._cumulative[:, 1:]  # [B, 32]
        self._sums = self._cumulative[:, -1]  # [B]
        self._above = np.empty((batch_size, FANOUT), np.bool_)

    def choose(
        self, blocks: NDArray[np.float64], node: NDArray[np.int64], rest: NDArray[np.float64]
    ) -> NDArray[np.int64]:
        """Which child of each node its mass falls into; takes what lies before off `rest`. [B]"""
        blocks.take(node, axis=0, out=self._children, mode="clip")
        np.add.accumulate(self._children, axis=1, out=self._ends)
        np.minimum(rest, np.nextafter(self._sums, 0.0), out=rest)
        np.greater(self._ends, rest[:, None], out=self._above)
        # [B]  the first whose end lies above
        child: NDArray[np.int64] = self._above.argmax(axis=1)
        rest -= self._cumulative.take(child + self.offset)
        return child


def _constant(count: int, value: float) -> NDArray[np.float64]:
    # Zeros come from the system untouched and cost no memory before they are written.
    return np.zeros(count) if value == 0 else np.full(count, value)
