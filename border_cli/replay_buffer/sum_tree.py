"""Trees over priorities: for their sum, their minimum, and searches by cumulative sum.

Each node has 32 children, which numpy reduces in one call for all nodes that a batch touches.
The search accumulates the whole top level of up to 1,024 nodes, so that a million leaves
need only two levels below it. Parents are always recomputed from their children and never
incremented, so rounding errors do not accumulate.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

SHIFT = 5
FANOUT = 1 << SHIFT
TOP = FANOUT * FANOUT  # maximum number of nodes of the top level


class BlockTree:
    """An array of float64 values, with the reductions of blocks of 32 on each level."""

    def __init__(self, capacity: int, reduction: np.ufunc, neutral: float) -> None:
        self.capacity = capacity
        self._reduction = reduction
        self._neutral = neutral
        self._levels: list[NDArray[np.float64]] = []  # leaves first
        self._blocks: list[NDArray[np.float64]] = []  # [nodes, 32] for each level but the top
        nodes = capacity
        while nodes > TOP:
            parents = -(-nodes // FANOUT)
            level = _allocate_level(parents * FANOUT, neutral)
            self._levels.append(level)
            self._blocks.append(level.reshape(parents, FANOUT))
            nodes = parents
        self._levels.append(_allocate_level(nodes, neutral))
        self._leaves = self._levels[0][:capacity]

    @property
    def nbytes(self) -> int:
        """Bytes of all levels."""
        return sum(level.nbytes for level in self._levels)

    def get(self, index: NDArray[np.integer[Any]]) -> NDArray[np.float64]:
        """Returns the values at `index`. [B] float64"""
        values: NDArray[np.float64] = self._leaves[index]
        return values

    def set(self, index: NDArray[np.integer[Any]], value: NDArray[np.float64]) -> None:
        """Replaces the values at `index` [B]; if an index is repeated, the last value is stored."""
        self._leaves[index] = value
        for blocks, parents in zip(self._blocks, self._levels[1:], strict=True):
            index = index >> SHIFT
            # A parent of several indices is computed repeatedly, with the same result.
            children = blocks.take(index, axis=0, mode="clip")  # [B, 32]
            parents[index] = self._reduction.reduce(children, axis=1)

    def fill(self, start: int, end: int, value: float) -> None:
        """Sets values[start:end], which must not be empty, to the same number."""
        self._leaves[start:end] = value
        for blocks, parents in zip(self._blocks, self._levels[1:], strict=True):
            start, end = start >> SHIFT, ((end - 1) >> SHIFT) + 1
            self._reduction.reduce(blocks[start:end], axis=1, out=parents[start:end])

    def first(self, count: int) -> NDArray[np.float64]:
        """Returns copies of the first values. [count]"""
        return self._leaves[:count].copy()

    def load(self, values: NDArray[np.float64]) -> None:
        """Sets the first M values to `values` and the others to the neutral element. [M]"""
        self._leaves[: len(values)] = values
        self._leaves[len(values) :] = self._neutral
        for blocks, parents in zip(self._blocks, self._levels[1:], strict=True):
            self._reduction.reduce(blocks, axis=1, out=parents[: len(blocks)])

    def root(self) -> float:
        """Returns the reduction of all values."""
        return float(self._reduction.reduce(self._levels[-1]))


class MinTree(BlockTree):
    """A tree for the smallest value; values that were never set are infinite."""

    def __init__(self, capacity: int) -> None:
        super().__init__(capacity, np.minimum, np.inf)

    @property
    def smallest(self) -> float:
        return self.root()


class SumTree(BlockTree):
    """A tree of non-negative values, for their total and for searches by cumulative sum."""

    def __init__(self, capacity: int) -> None:
        super().__init__(capacity, np.add, 0.0)
        self._cumulative = np.zeros(len(self._levels[-1]) + 1)  # [1 + top nodes], starts with 0
        self._scratch = _Descent(0)

    @property
    def total(self) -> float:
        return self.root()

    def find(self, mass: NDArray[np.float64]) -> NDArray[np.int64]:
        """Returns the first indices whose cumulative sums exceed the masses. [B], each at least 0

        Never returns an index with value 0, despite rounding: at each level, a mass is clipped to
        just below the sum of the candidates. Raises ValueError if the total is 0.
        """
        ends = self._cumulative[1:]  # [top nodes]
        np.add.accumulate(self._levels[-1], out=ends)
        if not ends[-1] > 0:
            raise ValueError("nothing to find: every value of the tree is 0")
        rest = np.minimum(mass, np.nextafter(ends[-1], 0.0))  # [B]
        # [B]  first node whose end exceeds the mass
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
    """Priorities of slots, which are sampled in proportion to them."""

    def __init__(self, capacity: int, *, minimum: bool) -> None:
        """`minimum`: whether to track the smallest priority of all slots."""
        self.sums = SumTree(capacity)
        self.minima = MinTree(capacity) if minimum else None
        self._trees: list[BlockTree] = [self.sums, *([self.minima] if self.minima else [])]

    @property
    def nbytes(self) -> int:
        """Bytes of all trees."""
        return sum(tree.nbytes for tree in self._trees)

    def fill(self, start: int, end: int, value: float) -> None:
        """Sets priorities[start:end], which must not be empty, to the same number."""
        for tree in self._trees:
            tree.fill(start, end, value)

    def set(self, index: NDArray[np.int64], value: NDArray[np.float64]) -> None:
        """Replaces the priorities of slots. [B], [B]"""
        for tree in self._trees:
            tree.set(index, value)

    def first(self, count: int) -> NDArray[np.float64]:
        """Returns copies of the first priorities. [count]"""
        return self.sums.first(count)

    def load(self, values: NDArray[np.float64]) -> None:
        """Sets the first M priorities to `values` and clears the others. [M]"""
        # Parents depend on their leaves alone, so the restored trees are identical to the bit.
        for tree in self._trees:
            tree.load(values)

    def draw(self, u: NDArray[np.float64]) -> NDArray[np.int64]:
        """Draws a slot from each of B equal slices of the total, with `u` uniform in [0, 1). [B]"""
        slice_mass = self.sums.total / len(u)
        return self.sums.find((np.arange(len(u)) + u) * slice_mass)

    def priorities_of(self, index: NDArray[np.int64]) -> tuple[NDArray[np.float64], float]:
        """Returns priorities of a batch, and the smallest of all (of the batch if untracked).
        [B]"""
        priority = self.sums.get(index)
        return priority, self.minima.smallest if self.minima else float(priority.min())


class _Descent:
    """A step down by one level for B nodes at once, with preallocated arrays."""

    def __init__(self, batch_size: int) -> None:
        self.offset = np.arange(batch_size) * (FANOUT + 1)  # [B]  row starts in `_cumulative`
        self._children = np.empty((batch_size, FANOUT))
        self._cumulative = np.zeros((batch_size, FANOUT + 1))  # starts with 0
        self._ends = self._cumulative[:, 1:]  # [B, 32]
        self._sums = self._cumulative[:, -1]  # [B]
        self._above = np.empty((batch_size, FANOUT), np.bool_)

    def choose(
        self, blocks: NDArray[np.float64], node: NDArray[np.int64], rest: NDArray[np.float64]
    ) -> NDArray[np.int64]:
        """Returns the child containing each mass; subtracts the preceding sum from `rest`. [B]"""
        blocks.take(node, axis=0, out=self._children, mode="clip")
        np.add.accumulate(self._children, axis=1, out=self._ends)
        np.minimum(rest, np.nextafter(self._sums, 0.0), out=rest)
        np.greater(self._ends, rest[:, None], out=self._above)
        # [B]  first child whose end exceeds the mass
        child: NDArray[np.int64] = self._above.argmax(axis=1)
        rest -= self._cumulative.take(child + self.offset)
        return child


def _allocate_level(count: int, value: float) -> NDArray[np.float64]:
    # np.zeros returns untouched pages, which take no memory until they are written.
    return np.zeros(count) if value == 0 else np.full(count, value)
