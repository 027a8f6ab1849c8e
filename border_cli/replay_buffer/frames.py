"""A ring of transitions with stacked frames that stores each frame once.

A stack of four frames shares three with the stack before it, and each stack is `next_obs` of one
transition and `obs` of another: a plain ring would store every frame eight times. Here, transitions
contain slots of frames, and stacks are assembled when sampled. Frames are compared by their pixels,
so stacks are restored exactly, even at the ends of episodes, with n steps, with several actors, or
if frames do not overlap at all.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from border_cli.core.rows import slice_rows, storage_nbytes
from border_cli.core.spaces import BoxSpace, EnvSpec
from border_cli.core.types import Array, Batch, Column, Transitions
from border_cli.errors import CheckpointError
from border_cli.replay_buffer.frame_snapshot import STACKS, FrameRingSnapshot, slot_columns
from border_cli.replay_buffer.frame_store import (
    MOST_AT_ONCE,
    SLOT_NBYTES,
    FrameStore,
    Pixels,
    reserved_frames,
)
from border_cli.replay_buffer.ring import Ring

STAYS = 2**62  # number given to transitions of a data set, which are never overwritten


def _frame_sizes(spec: EnvSpec) -> tuple[int, int]:
    """Returns the number of frames per stack, and the bytes of one frame."""
    assert isinstance(spec.observation, BoxSpace)
    depth, *shape = spec.observation.shape
    return depth, math.prod(shape)


def _slot_spec(spec: EnvSpec) -> EnvSpec:
    """Returns the spec of transitions that contain slots instead of frames."""
    depth, _ = _frame_sizes(spec)
    low, high = np.zeros(depth, np.int32), np.full(depth, 2**31 - 1, np.int32)
    return replace(spec, observation=BoxSpace((depth,), "int32", low, high))


class FrameRing(Ring):
    """A ring of transitions that contain slots, with a store of frames; owned by the learner's
    thread."""

    def __init__(
        self,
        spec: EnvSpec,
        capacity: int,
        *,
        most_fixed: int = 0,
        extras: Sequence[Column] = (),
    ) -> None:
        assert isinstance(spec.observation, BoxSpace), "see `stores_frames`"
        super().__init__(_slot_spec(spec), capacity, most_fixed=most_fixed, extras=extras)
        self._shape = spec.observation.shape  # [k, H, W]
        depth, nbytes = _frame_sizes(spec)
        rows = most_fixed + capacity
        self._frames = FrameStore(
            nbytes, reserved=reserved_frames(rows, depth), most=2 * depth * rows
        )
        self._at_once = max(1, MOST_AT_ONCE // (2 * depth))  # transitions stored at once
        # [at_once, 2, k, H, W]
        self._incoming = np.empty((self._at_once, 2, *self._shape), np.uint8)
        self._inner: Batch | None = None  # newest batch, with slots
        self._oldest = 0  # oldest transition of the state being restored

    @classmethod
    def row_nbytes(cls, spec: EnvSpec, extras: Sequence[Column] = ()) -> int:
        """Returns the bytes of one transition, including the one frame that it adds."""
        return storage_nbytes(_slot_spec(spec), 1, extras) + _frame_sizes(spec)[1] + SLOT_NBYTES

    @property
    def nbytes(self) -> int:
        """Bytes of all transitions, including one frame each."""
        rows = self.capacity + self.fixed
        return super().nbytes + rows * (self._frames.frame_nbytes + SLOT_NBYTES)

    def store_fixed(self, parts: Iterable[Transitions]) -> None:
        def store_parts() -> Iterator[Transitions]:
            for rows in parts:
                for piece in _split(rows, self._at_once):
                    yield self._store(piece, np.full(len(piece), STAYS), oldest=0)

        super().store_fixed(store_parts())

    def push(self, transitions: Transitions) -> list[tuple[int, int]]:
        ranges: list[tuple[int, int]] = []
        for piece in _split(transitions, min(self._at_once, self.capacity)):
            oldest = self._release_overwritten(len(piece))
            rows = self.pushed + np.arange(len(piece))
            ranges += super().push(self._store(piece, rows, oldest=oldest))
        return ranges

    def _release_overwritten(self, count: int) -> int:
        """Frees the frames of transitions that `count` new ones overwrite; returns the number of
        the oldest transition that remains."""
        self._announce_overwrite(count)
        overwritten = max(0, self.size + count - self.capacity)
        oldest = self.pushed - self.size + overwritten
        if overwritten:
            index = (self.position - self.size + np.arange(overwritten)) % self.capacity
            columns = self._rows.columns
            slots = np.concatenate([columns[name][index].ravel() for name in STACKS])
            self._frames.release(slots.astype(np.int64), oldest=oldest)
        return oldest

    def _store(self, rows: Transitions, numbers: NDArray[np.int64], *, oldest: int) -> Transitions:
        """Stores the frames of transitions, and returns the transitions with slots instead."""
        depth = self._shape[0]
        stacks = self._incoming[: len(rows)]  # ordered by transition, so that numbers ascend
        for i, stack in enumerate((rows.obs, rows.next_obs)):
            self._require_stacks(stack, len(rows))
            np.copyto(stacks[:, i], stack, casting="same_kind")  # type: ignore[arg-type]
        frames = stacks.reshape(-1, self._frames.frame_nbytes)
        slots = self._frames.put(frames, np.repeat(numbers, 2 * depth), oldest=oldest)
        by_row = slots.astype(np.int32).reshape(len(rows), 2, depth)
        return replace(rows, obs=by_row[:, 0], next_obs=by_row[:, 1])

    def _require_stacks(self, stacks: Array, count: int) -> None:
        expected = (count, *self._shape)
        actual = stacks.shape if isinstance(stacks, np.ndarray) else "a dict"
        if actual != expected:  # otherwise numpy would broadcast it
            raise ValueError(f"stacks of {self._spec.id} must have shape {expected}, got {actual}")

    def gather(self, index: NDArray[np.integer[Any]]) -> Batch:
        inner = super().gather(index)
        if inner is not self._inner:
            self._inner = inner
            # Both stacks of all transitions are read in one call, into memory that is reused.
            self._drawn = np.empty((2, len(index), *self._shape), np.uint8)
            self._drawn_slots = np.empty((2, len(index), self._shape[0]), np.intp)
            self._batch = replace(inner, obs=self._drawn[0], next_obs=self._drawn[1])
        for slots, column in zip(self._drawn_slots, (inner.obs, inner.next_obs), strict=True):
            np.copyto(slots, column)  # type: ignore[arg-type]  # never a dict
        stacks = self._drawn.reshape(-1, self._frames.frame_nbytes)
        self._frames.read(self._drawn_slots.reshape(-1), stacks)
        return self._batch

    def _make_snapshot(self, **bounds: int) -> FrameRingSnapshot:
        return FrameRingSnapshot(self._rows.blocks, self._frames, self._entry, **bounds)

    @property
    def _entry(self) -> np.dtype[Any]:
        """The dtype of a frame in a checkpoint."""
        return np.dtype([("frame", np.uint8, self._shape[1:])])

    def restore(self, state: Mapping[str, Any]) -> None:
        super().restore(state)
        self._oldest = self._restored
        if self.fixed:
            self._frames.release_unused(oldest=STAYS)
        else:
            self._frames.clear()

    def restore_rows(self, first: int, blocks: Sequence[NDArray[Any]]) -> bool:
        """Restores a chunk of frames, and of transitions that refer to them by index."""
        frames, *rows = blocks
        if frames.dtype != self._entry or frames.ndim != 1:
            raise CheckpointError(f"the saved frames are {frames.dtype}, expected {self._entry}")
        pixels: Pixels = frames["frame"].reshape(-1, self._frames.frame_nbytes)
        slots = np.empty(len(pixels), np.int64)
        for i in range(0, len(pixels), MOST_AT_ONCE):
            piece = pixels[i : i + MOST_AT_ONCE]
            no_row = np.full(len(piece), -1)  # no transition refers to them yet
            slots[i : i + len(piece)] = self._frames.put(piece, no_row, oldest=self._oldest)
        complete = super().restore_rows(first, self._insert_slots(first, rows, slots))
        if complete or first < self._oldest:  # frees the frames of overwritten transitions
            self._frames.release_unused(oldest=self._oldest)
        return complete

    def _insert_slots(
        self, first: int, blocks: Sequence[NDArray[Any]], slots: NDArray[np.int64]
    ) -> list[NDArray[Any]]:
        """Returns copies of the transitions in which slots replace frame indices."""
        copies = [block.copy() for block in blocks]
        for column in slot_columns(copies):
            if column.size and not 0 <= column.min() <= column.max() < len(slots):
                raise CheckpointError(f"the saved rows refer to more than {len(slots)} frames")
            column[:] = slots[column]
            numbers = np.repeat(first + np.arange(len(column)), column.shape[1])
            self._frames.refer(column.ravel().astype(np.int64), numbers)
        return copies


def _split(rows: Transitions, count: int) -> Iterator[Transitions]:
    """Splits transitions into pieces of at most `count`."""
    if len(rows) <= count:
        yield rows
        return
    for i in range(0, len(rows), count):
        yield slice_rows(rows, slice(i, i + count))
