"""Snapshots of a ring's transitions, written to disk while new ones overwrite the ring."""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np
from numpy.typing import NDArray

CHUNK_NBYTES = 16 * 2**20  # bytes copied and written at a time
CHUNKS_AT_ONCE = 2  # chunks copied in advance, to give the disk a lead over the learner


class RingSnapshot:
    """A snapshot of the transitions `first` to `end` (exclusive) of a ring, in chunks.

    The constructor copies the first chunks, in the learner's thread; the thread that writes the
    chunks copies the others, without a lock. If the learner is about to overwrite a transition
    that was not copied yet, the snapshot is abandoned.
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
        self._blocks = blocks  # the arrays of the ring, [capacity] each
        self._slot = slot  # slot of transition `first`
        self._chunk_rows = max(1, chunk_nbytes // self.row_nbytes)
        self._copied = first  # transitions before this number may be overwritten
        self._abandoned = False
        copies = (self._copy_next() for _ in range(CHUNKS_AT_ONCE))
        self._ready = deque(chunk for chunk in copies if chunk is not None)

    @property
    def row_nbytes(self) -> int:
        """Bytes that one transition adds to a chunk."""
        return sum(block.dtype.itemsize for block in self._blocks)

    def overwrite(self, limit: int) -> bool:
        """Called by the learner's thread before it overwrites transitions below number `limit`.
        Returns False once the snapshot needs no more calls."""
        if self._copied < min(limit, self.end):
            self._abandoned = True
        return self._copied < self.end and not self._abandoned

    def take(self) -> list[NDArray[Any]] | None:
        """Returns copies of the next transitions, or None if all have been taken or were
        abandoned."""
        return self._ready.popleft() if self._ready else self._copy_next()

    def _copy_next(self) -> list[NDArray[Any]] | None:
        start, stop = self._copied, min(self._copied + self._chunk_rows, self.end)
        if start == stop or self._abandoned:
            return None
        rows = self._copy(start, stop)
        if self._abandoned:  # during the copy: rows may be inconsistent
            return None
        self._copied = stop
        return rows

    def release(self) -> None:
        """Abandons all transitions that were not taken. May be called repeatedly and by any
        thread."""
        self._abandoned = True
        self._ready.clear()

    def _copy(self, start: int, stop: int) -> list[NDArray[Any]]:
        capacity, count = len(self._blocks[0]), stop - start
        slot = (self._slot + start - self.first) % capacity
        before_end = min(count, capacity - slot)
        copies = []
        for block in self._blocks:
            copy = np.empty(count, block.dtype)  # [rows]
            # Copied as bytes: numpy would copy structured rows field by field, four times slower.
            target, source = rows_as_bytes(copy), rows_as_bytes(block)
            target[:before_end] = source[slot : slot + before_end]
            target[before_end:] = source[: count - before_end]
            copies.append(copy)
        return copies


def rows_as_bytes(block: NDArray[Any]) -> NDArray[np.uint8]:
    """Returns a view of the rows' memory as bytes. [rows, bytes per row]"""
    rows: NDArray[np.uint8] = block.view(np.uint8).reshape(len(block), block.dtype.itemsize)
    return rows
