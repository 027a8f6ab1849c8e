"""Rows of a ring as they were at one moment, while more are pushed over them."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
from numpy.typing import NDArray

ASIDE_NBYTES = 2**30  # most that is copied aside for a disk that does not keep up


class FrozenSlots:
    """Rows `first` … `end` of a ring; taken by the thread that writes them.

    The writing thread copies without the lock, so that the learner never waits for a copy. What the
    learner overwrites meanwhile was copied aside before and replaces the torn rows afterwards.
    """

    def __init__(
        self,
        blocks: list[NDArray[Any]],
        *,
        first: int,
        end: int,
        slot: int,
        oldest: int = 0,
        aside_nbytes: int = ASIDE_NBYTES,
    ) -> None:
        self.oldest = oldest
        self.first = first
        self.end = end
        self.row_nbytes = sum(block.dtype.itemsize for block in blocks)
        self._blocks = blocks  # the ring's own, each [capacity]
        self._slot = slot  # of row `first`
        self._lock = threading.Lock()
        self._next = first  # rows before it were taken
        self._guarded = first  # rows before it were taken or lie in `_aside`
        self._aside: list[tuple[int, list[NDArray[Any]]]] = []  # number of the first row, rows
        self._aside_nbytes = 0
        self._most_nbytes = aside_nbytes
        self._given_up = False

    @property
    def next(self) -> int:
        """The number of the next row that is taken."""
        return self._next

    def copy_aside(self, limit: int) -> bool:
        """Copies aside the rows before number `limit`, which are about to be overwritten.

        Called by the learner's thread; False once there is nothing left to copy.
        """
        with self._lock:
            start, stop = max(self._next, self._guarded), min(limit, self.end)
            if start < stop:
                rows = self._copy(start, stop)
                self._aside.append((start, rows))
                self._aside_nbytes += sum(block.nbytes for block in rows)
                self._guarded = stop
            if self._aside_nbytes > self._most_nbytes:
                self._give_up()
            return self._next < self.end

    def take(self, count: int) -> list[NDArray[Any]] | None:
        """Copies of the next rows, at most so many. None once all are taken or given up."""
        start = self._next  # `release` may move it to the end meanwhile
        stop = min(start + count, self.end)
        if start >= stop:
            return None
        rows = self._copy(start, stop)
        with self._lock:
            if self._given_up:
                return None
            aside = [each for each in self._aside if each[0] < stop]
            self._aside = [each for each in self._aside if each[0] + len(each[1][0]) > stop]
            self._aside_nbytes = sum(block.nbytes for _, each in self._aside for block in each)
            self._next = stop
        for first, kept in aside:
            _replace_torn(rows, start, kept, first)
        return rows

    def release(self) -> None:
        """Gives up what was not taken; may be called twice, by any thread."""
        with self._lock:
            self._give_up()

    def _give_up(self) -> None:
        self._given_up = True
        self._next = self.end
        self._aside.clear()
        self._aside_nbytes = 0

    def _copy(self, start: int, stop: int) -> list[NDArray[Any]]:
        capacity, count = len(self._blocks[0]), stop - start
        slot = (self._slot + start - self.first) % capacity
        before_end = min(count, capacity - slot)
        copies = []
        for block in self._blocks:
            copy = np.empty(count, block.dtype)  # [rows]
            # As bytes: numpy would copy structured rows field by field, four times slower.
            target, source = rows_as_bytes(copy), rows_as_bytes(block)
            target[:before_end] = source[slot : slot + before_end]
            target[before_end:] = source[: count - before_end]
            copies.append(copy)
        return copies


def rows_as_bytes(block: NDArray[Any]) -> NDArray[np.uint8]:
    """The memory of the rows as bytes. [rows, bytes of a row]"""
    rows: NDArray[np.uint8] = block.view(np.uint8).reshape(len(block), block.dtype.itemsize)
    return rows


def _replace_torn(
    rows: list[NDArray[Any]], start: int, kept: list[NDArray[Any]], first: int
) -> None:
    """Replaces what both have, `rows` numbered from `start` and `kept` from `first`."""
    low, high = max(start, first), min(start + len(rows[0]), first + len(kept[0]))
    if low < high:
        for target, source in zip(rows, kept, strict=True):
            rows_as_bytes(target)[low - start : high - start] = rows_as_bytes(source)[
                low - first : high - first
            ]
