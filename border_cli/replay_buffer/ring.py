"""The newest transitions in a ring, and what its rows are in a checkpoint."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from border_cli.core.rows import Rows, columns_of, row_columns, storage_nbytes
from border_cli.core.spaces import EnvSpec
from border_cli.core.types import Batch, Column, Transitions
from border_cli.errors import CheckpointError, RunFailed
from border_cli.replay_buffer.frozen_rows import CHUNK_NBYTES, FrozenSlots, rows_as_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class RingState:
    """Which rows a ring holds and where, without the rows."""

    rows_pushed: int
    position: int  # where the next row goes
    size: int  # rows stored


class _ReusedBatch:
    """The arrays that every sample of one size is written to."""

    def __init__(self, spec: EnvSpec, batch_size: int, extras: Sequence[Column]) -> None:
        self.rows = Rows.empty(spec, batch_size, extras)
        self.batch = Batch(
            weight=np.ones(batch_size, np.float32),  # [B]
            index=np.zeros(batch_size, np.int64),  # [B]
            **self.rows.parts(),
        )


class Ring:
    """The newest `capacity` rows, in the layout of `core/rows.py`; owned by the learner's thread.

    In front of them are the rows that `fix` was given, which stay: `gather` and `read` count these
    first, all other methods are about the others alone.
    """

    def __init__(
        self,
        spec: EnvSpec,
        capacity: int,
        *,
        most_fixed: int = 0,
        extras: Sequence[Column] = (),
    ) -> None:
        """`extras`: columns beside those of all runs."""
        self.capacity = capacity
        self.fixed = 0  # rows that stay
        self.position = 0  # where the next row goes
        self.size = 0  # rows stored
        self.pushed = 0  # rows ever pushed
        self._spec, self._extras = spec, extras
        self._frozen: FrozenSlots | None = None
        self._awaited: RingState | None = None  # of a resumed run, until its rows are restored
        self._restored = 0  # rows of it before this number are
        self._all = Rows.empty(spec, most_fixed + capacity, extras)
        self._rows = self._behind_fixed()
        self._reused = _ReusedBatch(spec, 0, extras)

    @classmethod
    def row_nbytes(cls, spec: EnvSpec, extras: Sequence[Column] = ()) -> int:
        """Bytes of one row."""
        return storage_nbytes(spec, 1, extras)

    @property
    def nbytes(self) -> int:
        """Bytes of all rows."""
        return sum(block.nbytes for block in self._all.blocks)

    def column(self, name: str) -> NDArray[Any]:
        """One column of all slots, as a view.  [slots, …]"""
        return self._all.columns[name]

    def slots_of(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """Where the stored rows of these numbers are.  [M]"""
        slots: NDArray[np.int64] = (self.position - self.pushed + numbers) % self.capacity
        return self.fixed + slots

    @property
    def stored(self) -> int:
        """Rows that can be drawn, those that stay among them."""
        return self.fixed + self.size

    def _behind_fixed(self) -> Rows:
        """The part of the storage that is a ring, in the same memory."""
        blocks = [block[self.fixed : self.fixed + self.capacity] for block in self._all.blocks]
        return Rows(row_columns(self._spec, self._extras), blocks)

    def fix(self, parts: Iterable[Transitions]) -> None:
        """Copies rows in that stay; before any is pushed, and `most_fixed` at most."""
        most = len(self._all.blocks[0]) - self.capacity
        for rows in parts:
            end = self.fixed + len(rows)
            if end > most:
                raise ValueError(f"there is space for {most} fixed rows, got {end}")
            for name, source in self._checked(rows).items():
                np.copyto(self._all.columns[name][self.fixed : end], source, casting="same_kind")
            self.fixed = end
        self._rows = self._behind_fixed()

    def push(self, transitions: Transitions) -> list[tuple[int, int]]:
        """Copies M rows in; returns the ranges of slots written, start and end.

        Of more rows than the capacity only the newest are kept, in the slots where pushing them
        one by one would have left them.
        """
        columns = self._checked(transitions)
        count = len(transitions)
        self._overwrite(count)
        skipped = max(0, count - self.capacity)
        start = (self.position + skipped) % self.capacity
        before_end = min(count - skipped, self.capacity - start)
        after_wrap = count - skipped - before_end
        for name, source in columns.items():
            target = self._rows.columns[name]
            kept = source[skipped:]
            # same_kind: float64 may become float32, but no float becomes a uint8 unnoticed
            np.copyto(target[start : start + before_end], kept[:before_end], casting="same_kind")
            np.copyto(target[:after_wrap], kept[before_end:], casting="same_kind")
        self.position = (self.position + count) % self.capacity
        self.size = min(self.size + count, self.capacity)
        self.pushed += count
        ranges = ((start, start + before_end), (0, after_wrap))
        return [(first, end) for first, end in ranges if end > first]

    def _overwrite(self, count: int) -> None:
        """So many rows are about to be written."""
        if self._frozen and not self._frozen.overwrite(self.pushed + count - self.capacity):
            self._frozen = None

    def _checked(self, transitions: Transitions) -> dict[str, NDArray[Any]]:
        columns = columns_of(transitions)
        if columns.keys() != self._rows.columns.keys():
            raise ValueError(
                f"rows of {self._spec.id} have the columns {', '.join(self._rows.columns)}, "
                f"got {', '.join(columns)}"
            )
        count = len(transitions)
        for name, column in columns.items():
            expected = (count, *self._rows.columns[name].shape[1:])
            if column.shape != expected:  # else numpy would stretch it
                raise ValueError(
                    f"{name} of {self._spec.id} must have shape {expected}, got {column.shape}"
                )
        return columns

    def clear(self) -> None:
        """Drops all rows; numbers go on."""
        self.size = 0

    def require_rows(self, batch_size: int, *, of_actors: bool = False) -> None:
        """Raises `RunFailed` where nothing is stored, or nothing but rows that stay."""
        if (self.size if of_actors else self.stored) == 0:
            raise RunFailed(
                f"cannot sample {batch_size} transitions: the replay buffer is empty "
                "(trainer.warmup_period sets how many are collected first)"
            )

    def gather(self, index: NDArray[np.integer[Any]]) -> Batch:
        """The rows at `index` [B], with weight 1, in arrays that the next call overwrites."""
        if len(self._reused.batch) != len(index):
            self._reused = _ReusedBatch(self._spec, len(index), self._extras)
        reused = self._reused
        reused.batch.index[:] = index
        for block, sampled in zip(self._all.blocks, reused.rows.blocks, strict=True):
            # The index is ours and valid; `clip` only spares numpy a copy of the output.
            block.take(index, out=sampled, mode="clip")
        return reused.batch

    def freeze(self, first: int, *, chunk_nbytes: int = CHUNK_NBYTES) -> FrozenSlots:
        """The stored rows from number `first` on; ends what an earlier call froze."""
        if self._frozen:
            self._frozen.release()
        first = min(max(first, self.pushed - self.size), self.pushed)
        self._frozen = self._frozen_rows(
            oldest=self.pushed - self.size,
            first=first,
            end=self.pushed,
            slot=(self.position - (self.pushed - first)) % self.capacity,
            chunk_nbytes=chunk_nbytes,
        )
        return self._frozen

    def _frozen_rows(self, **place: int) -> FrozenSlots:
        return FrozenSlots(self._rows.blocks, **place)

    @property
    def state(self) -> RingState:
        """Which rows are stored, and where."""
        return RingState(rows_pushed=self.pushed, position=self.position, size=self.size)

    def restore(self, state: RingState) -> None:
        """Empties the ring; numbers continue from there, and `restore_rows` restores the rows."""
        if self._frozen:
            self._frozen.release()
        self._frozen = None
        position = 0 if state.size else state.position  # no row is awaited
        self.pushed, self.position, self.size = state.rows_pushed, position, 0
        self._awaited = state
        self._restored = state.rows_pushed - state.size

    def restore_rows(self, first: int, blocks: Sequence[NDArray[Any]]) -> bool:
        """Restores rows numbered from `first` on, in rising order; True once all are.

        They count as stored when the last has come: without all of them the ring is an empty one.
        """
        self._require_form(blocks)
        state = self._awaited
        assert state is not None, "restore() comes first"
        # Those before were overwritten before the state was taken.
        skipped = max(0, state.rows_pushed - state.size - first)
        blocks, first = [each[skipped:] for each in blocks], first + skipped
        end = first + len(blocks[0])
        if first != self._restored or end > self.pushed:
            raise CheckpointError(f"rows {first} to {end} are not the next saved ones")
        slot = (state.position - (self.pushed - first)) % self.capacity
        before_end = min(end - first, self.capacity - slot)
        for block, source in zip(self._rows.blocks, blocks, strict=True):
            target, rows = rows_as_bytes(block), rows_as_bytes(source)
            target[slot : slot + before_end] = rows[:before_end]
            target[: end - first - before_end] = rows[before_end:]
        self._restored = end
        if end == self.pushed:
            self.position, self.size, self._awaited = state.position, state.size, None
        return end == self.pushed

    def _require_form(self, blocks: Sequence[NDArray[Any]]) -> None:
        ours, saved = ([each.dtype for each in those] for those in (self._rows.blocks, blocks))
        if saved != ours or len({each.shape for each in blocks}) != 1 or blocks[0].ndim != 1:
            raise CheckpointError(
                f"the saved rows have types {saved}, but {self._spec.id} has {ours}"
            )
