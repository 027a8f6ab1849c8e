"""A ring buffer of the newest transitions, and its state in checkpoints."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from border_cli.core.rows import Rows, columns_of, row_columns, storage_nbytes
from border_cli.core.spaces import EnvSpec
from border_cli.core.types import Batch, Column, State, Transitions
from border_cli.errors import CheckpointError, RunFailed
from border_cli.replay_buffer.ring_snapshot import CHUNK_NBYTES, RingSnapshot, rows_as_bytes


class _ReusedBatch:
    """Preallocated arrays for all batches of one size."""

    def __init__(self, spec: EnvSpec, batch_size: int, extras: Sequence[Column]) -> None:
        self.rows = Rows.empty(spec, batch_size, extras)
        self.batch = Batch(
            weight=np.ones(batch_size, np.float32),  # [B]
            index=np.zeros(batch_size, np.int64),  # [B]
            **self.rows.parts(),
        )


class Ring:
    """A ring of the newest `capacity` transitions, in the layout of `core/rows.py`.

    Transitions stored by `store_fixed` are never overwritten, and their slots come first in
    `column`, `slots_of` and `gather`. Owned by the learner's thread.
    """

    def __init__(
        self,
        spec: EnvSpec,
        capacity: int,
        *,
        most_fixed: int = 0,
        extras: Sequence[Column] = (),
    ) -> None:
        """`extras` are columns in addition to those that every run has."""
        self.capacity = capacity
        self.fixed = 0  # transitions that are never overwritten
        self.position = 0  # slot of the next transition
        self.size = 0  # transitions stored in the ring
        self.pushed = 0  # transitions pushed so far
        self._spec, self._extras = spec, extras
        self._frozen: RingSnapshot | None = None
        # Position and size of a loaded state, until its transitions are restored
        self._awaited: tuple[int, int] | None = None
        self._restored = 0  # number of the next transition to restore
        self._all = Rows.empty(spec, most_fixed + capacity, extras)
        self._rows = self._view_ring()
        self._reused = _ReusedBatch(spec, 0, extras)

    @classmethod
    def row_nbytes(cls, spec: EnvSpec, extras: Sequence[Column] = ()) -> int:
        """Returns the bytes of one transition."""
        return storage_nbytes(spec, 1, extras)

    @property
    def nbytes(self) -> int:
        """Bytes of all transitions."""
        return sum(block.nbytes for block in self._all.blocks)

    def column(self, name: str) -> NDArray[Any]:
        """Returns a view of one column, for all slots.  [slots, …]"""
        return self._all.columns[name]

    def slots_of(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """Returns the slots of the stored transitions with these numbers.  [M]"""
        slots: NDArray[np.int64] = (self.position - self.pushed + numbers) % self.capacity
        return self.fixed + slots

    @property
    def stored(self) -> int:
        """Number of transitions that can be sampled, including the fixed ones."""
        return self.fixed + self.size

    def _view_ring(self) -> Rows:
        """Returns a view of the storage without the fixed transitions."""
        blocks = [block[self.fixed : self.fixed + self.capacity] for block in self._all.blocks]
        return Rows(row_columns(self._spec, self._extras), blocks)

    def store_fixed(self, parts: Iterable[Transitions]) -> None:
        """Stores transitions that are never overwritten; must precede `push`. Raises ValueError if
        there are more than `most_fixed` in total."""
        most = len(self._all.blocks[0]) - self.capacity
        for rows in parts:
            end = self.fixed + len(rows)
            if end > most:
                raise ValueError(f"there is space for {most} fixed rows, got {end}")
            for name, source in self._check_columns(rows).items():
                np.copyto(self._all.columns[name][self.fixed : end], source, casting="same_kind")
            self.fixed = end
        self._rows = self._view_ring()

    def push(self, transitions: Transitions) -> list[tuple[int, int]]:
        """Copies M transitions into the ring; returns the slots written, as ranges (start, end).

        If M exceeds the capacity, only the newest transitions are stored, in the same slots as if
        they had been pushed one by one.
        """
        columns = self._check_columns(transitions)
        count = len(transitions)
        self._announce_overwrite(count)
        skipped = max(0, count - self.capacity)
        start = (self.position + skipped) % self.capacity
        before_end = min(count - skipped, self.capacity - start)
        after_wrap = count - skipped - before_end
        for name, source in columns.items():
            target = self._rows.columns[name]
            newest = source[skipped:]
            # same_kind: float64 may become float32, but a float is never silently cast to uint8.
            np.copyto(target[start : start + before_end], newest[:before_end], casting="same_kind")
            np.copyto(target[:after_wrap], newest[before_end:], casting="same_kind")
        self.position = (self.position + count) % self.capacity
        self.size = min(self.size + count, self.capacity)
        self.pushed += count
        ranges = ((start, start + before_end), (0, after_wrap))
        return [(first, end) for first, end in ranges if end > first]

    def _announce_overwrite(self, count: int) -> None:
        """Announces to the current snapshot that `count` transitions are about to be written."""
        if self._frozen and not self._frozen.overwrite(self.pushed + count - self.capacity):
            self._frozen = None

    def _check_columns(self, transitions: Transitions) -> dict[str, NDArray[Any]]:
        columns = columns_of(transitions)
        if columns.keys() != self._rows.columns.keys():
            raise ValueError(
                f"rows of {self._spec.id} have the columns {', '.join(self._rows.columns)}, "
                f"got {', '.join(columns)}"
            )
        count = len(transitions)
        for name, column in columns.items():
            expected = (count, *self._rows.columns[name].shape[1:])
            if column.shape != expected:  # otherwise numpy would broadcast it
                raise ValueError(
                    f"{name} of {self._spec.id} must have shape {expected}, got {column.shape}"
                )
        return columns

    def clear(self) -> None:
        """Removes all transitions; the numbering continues."""
        self.size = 0

    def require_rows(self, batch_size: int, *, of_actors: bool = False) -> None:
        """Raises `RunFailed` if nothing is stored; `of_actors` ignores fixed transitions."""
        if (self.size if of_actors else self.stored) == 0:
            raise RunFailed(
                f"cannot sample {batch_size} transitions: the replay buffer is empty "
                "(trainer.warmup_period sets how many are collected first)"
            )

    def gather(self, index: NDArray[np.integer[Any]]) -> Batch:
        """Returns transitions `index` [B], with weight 1, in arrays that the next call
        overwrites."""
        if len(self._reused.batch) != len(index):
            self._reused = _ReusedBatch(self._spec, len(index), self._extras)
        reused = self._reused
        reused.batch.index[:] = index
        for block, sampled in zip(self._all.blocks, reused.rows.blocks, strict=True):
            # The index is valid; `clip` only saves numpy from buffering the output.
            block.take(index, out=sampled, mode="clip")
        return reused.batch

    def freeze(self, first: int, *, chunk_nbytes: int = CHUNK_NBYTES) -> RingSnapshot:
        """Returns a snapshot of the transitions from number `first` on, and ends the previous
        one."""
        if self._frozen:
            self._frozen.release()
        first = min(max(first, self.pushed - self.size), self.pushed)
        self._frozen = self._make_snapshot(
            oldest=self.pushed - self.size,
            first=first,
            end=self.pushed,
            slot=(self.position - (self.pushed - first)) % self.capacity,
            chunk_nbytes=chunk_nbytes,
        )
        return self._frozen

    def _make_snapshot(self, **bounds: int) -> RingSnapshot:
        return RingSnapshot(self._rows.blocks, **bounds)

    @property
    def state(self) -> State:
        """The counters and the position, for a checkpoint."""
        return {"rows_pushed": self.pushed, "position": self.position, "size": self.size}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Empties the ring and restores its counters; call `restore_rows` for the transitions."""
        if self._frozen:
            self._frozen.release()
        self._frozen = None
        position, size = self._awaited = state["position"], state["size"]
        self.pushed, self.size = state["rows_pushed"], 0
        self.position = 0 if size else position  # rows restart at slot 0 if they are not restored
        self._restored = self.pushed - size

    def restore_rows(self, first: int, blocks: Sequence[NDArray[Any]]) -> bool:
        """Restores transitions from number `first` on, in ascending order; True once all are
        stored.

        Until then, the ring counts as empty.
        """
        self._require_dtypes(blocks)
        assert self._awaited is not None, "restore() comes first"
        position, size = self._awaited
        # Earlier transitions had been overwritten before the state was saved.
        skipped = max(0, self.pushed - size - first)
        blocks, first = [column[skipped:] for column in blocks], first + skipped
        end = first + len(blocks[0])
        if first != self._restored or end > self.pushed:
            raise CheckpointError(f"rows {first} to {end} are not the next saved ones")
        slot = (position - (self.pushed - first)) % self.capacity
        before_end = min(end - first, self.capacity - slot)
        for block, source in zip(self._rows.blocks, blocks, strict=True):
            target, rows = rows_as_bytes(block), rows_as_bytes(source)
            target[slot : slot + before_end] = rows[:before_end]
            target[: end - first - before_end] = rows[before_end:]
        self._restored = end
        if end == self.pushed:
            self.position, self.size, self._awaited = position, size, None
        return end == self.pushed

    def _require_dtypes(self, blocks: Sequence[NDArray[Any]]) -> None:
        ours, saved = ([block.dtype for block in group] for group in (self._rows.blocks, blocks))
        if saved != ours or len({block.shape for block in blocks}) != 1 or blocks[0].ndim != 1:
            raise CheckpointError(
                f"the saved rows have types {saved}, but {self._spec.id} has {ours}"
            )
