"""Rows that refer to frames, with these frames, as they were at one moment: for a checkpoint."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from border_cli.replay_buffer.frame_store import FrameStore
from border_cli.replay_buffer.frozen_rows import FrozenSlots

STACKS: Final = ("obs", "next_obs")


def slot_columns(blocks: Sequence[NDArray[Any]]) -> list[NDArray[Any]]:
    """The columns of blocks of rows that have slots. each [M, k]"""
    names = {name: block for block in blocks for name in block.dtype.names or ()}
    return [names[name][name] for name in STACKS]


class FrozenStacks(FrozenSlots):
    """Rows of a ring whose stacks are slots of frames; each chunk has its frames.

    A chunk begins with its frames, and the slots of its rows are replaced by numbers of these. A
    frame is overwritten only after all rows that refer to it.
    """

    def __init__(
        self,
        blocks: list[NDArray[Any]],
        frames: FrameStore,
        entry: np.dtype[Any],
        **place: int,
    ) -> None:
        """`entry`: a frame in a file."""
        self._frames = frames
        self._entry = entry
        super().__init__(blocks, **place)

    @property
    def row_nbytes(self) -> int:
        return super().row_nbytes + self._frames.frame_nbytes

    def _copy(self, start: int, stop: int) -> list[NDArray[Any]]:
        blocks = super()._copy(start, stop)
        if self._given_up:  # meanwhile: slots may be torn
            return blocks
        columns = slot_columns(blocks)
        all_slots = np.concatenate([each.ravel() for each in columns])
        slots, number = np.unique(all_slots, return_inverse=True)
        for column, numbers in zip(columns, np.split(number, len(columns)), strict=True):
            column[:] = numbers.reshape(column.shape)
        frames = np.empty((len(slots), self._frames.frame_nbytes), np.uint8)
        self._frames.read(slots.astype(np.int64), frames)
        return [frames.view(self._entry)[:, 0], *blocks]
