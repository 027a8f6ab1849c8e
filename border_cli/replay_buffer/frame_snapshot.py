"""Snapshots of transitions together with the frames that they refer to, for checkpoints."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from border_cli.replay_buffer.frame_store import FrameStore
from border_cli.replay_buffer.ring_snapshot import RingSnapshot

STACKS: Final = ("obs", "next_obs")


def slot_columns(blocks: Sequence[NDArray[Any]]) -> list[NDArray[Any]]:
    """Returns the columns of the blocks that contain slots. [M, k] each"""
    by_name = {name: block for block in blocks for name in block.dtype.names or ()}
    return [by_name[name][name] for name in STACKS]


class FrameRingSnapshot(RingSnapshot):
    """A snapshot of transitions whose stacks are slots of frames.

    A chunk begins with its frames, and its transitions contain indices into them instead of slots.
    A frame is overwritten only after all transitions that refer to it.
    """

    def __init__(
        self,
        blocks: list[NDArray[Any]],
        frames: FrameStore,
        entry: np.dtype[Any],
        **bounds: int,
    ) -> None:
        """`entry` is the dtype of a frame in a checkpoint."""
        self._frames = frames
        self._entry = entry
        super().__init__(blocks, **bounds)

    @property
    def row_nbytes(self) -> int:
        return super().row_nbytes + self._frames.frame_nbytes

    def _copy(self, start: int, stop: int) -> list[NDArray[Any]]:
        blocks = super()._copy(start, stop)
        if self._abandoned:  # during the copy: slots may be inconsistent
            return blocks
        columns = slot_columns(blocks)
        all_slots = np.concatenate([slot_column.ravel() for slot_column in columns])
        slots, index = np.unique(all_slots, return_inverse=True)
        for column, indices in zip(columns, np.split(index, len(columns)), strict=True):
            column[:] = indices.reshape(column.shape)
        frames = np.empty((len(slots), self._frames.frame_nbytes), np.uint8)
        self._frames.read(slots.astype(np.int64), frames)
        return [frames.view(self._entry)[:, 0], *blocks]
