"""Rows of a ring as they were at one moment, while more are pushed over them."""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np
from numpy.typing import NDArray

CHUNK_NBYTES = 16 * 2**20  # copied and written at a time
CHUNKS_AT_ONCE = 2  # copied as rows are frozen: the lead of a disk over the learner


class FrozenSlots:
    """Rows `first` … `end` of a ring, in chunks; taken by the thread that writes them.

    That thread copies without a lock. Where the learner is about to overwrite a row that was not
    taken, all of them are given up: the disk does not keep up.
    """

    def __init__(
        self,
        blocks: list[NDArray[Any]],
        *,
        first: int,
        end: int,
        slot: int,
        oldest: int = 0,
        chunk_nbytes: int,
    ) -> None:
        self.oldest = oldest
        self.first = first
        self.end = end
        self._blocks = blocks  # the ring's own, each [capacity]
        self._slot = slot  # of row `first`
        self._chunk_rows = max(1, chunk_nbytes // self.row_nbytes)
        self._copied = first  # rows before it may be overwritten
        self._given_up = False
        copies = (self._next_copy() for _ in range(CHUNKS_AT_ONCE))
        self._ready = deque(each for each in copies if each is not None)

    @property
    def row_nbytes(self) -> int:
        """Bytes that a row adds to a chunk."""
        return sum(block.dtype.itemsize for block in self._blocks)

    def overwrite(self, limit: int) -> bool:
        """Rows before number `limit` are about to be overwritten; False once that is no matter.

        Called by the learner's thread.
        """
        if self._copied < min(limit, self.end):
            self._given_up = True
        return self._copied < self.end and not self._given_up

    def take(self) -> list[NDArray[Any]] | None:
        """Copies of the next rows. None once all are taken or given up."""
        return self._ready.popleft() if self._ready else self._next_copy()

    def _next_copy(self) -> list[NDArray[Any]] | None:
        start, stop = self._copied, min(self._copied + self._chunk_rows, self.end)
        if start == stop or self._given_up:
            return None
        rows = self._copy(start, stop)
        if self._given_up:  # meanwhile: some may be torn
            return None
        self._copied = stop
        return rows

    def release(self) -> None:
        """Gives up what was not taken; may be called twice, by any thread."""
        self._given_up = True
        self._ready.clear()

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
