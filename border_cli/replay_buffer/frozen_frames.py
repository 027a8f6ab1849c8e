"""Rows that refer to frames, and these frames, as they were at one moment: for a checkpoint."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from border_cli.replay_buffer.frame_store import FrameStore, Pixels, Slots
from border_cli.replay_buffer.frozen_rows import ASIDE_NBYTES, FrozenSlots


class FrozenFrames:
    """The frames to which rows `first` … `end` refer; taken by the thread that writes them.

    As with `FrozenSlots`, that thread copies without the lock, and what the learner overwrites
    meanwhile was copied aside before.
    """

    def __init__(self, source: FrameStore, *, first: int, end: int) -> None:
        self.nbytes = source.frame_nbytes
        self._source = source
        self._needed = first  # rows before it have their frames
        self._end = end
        self._lock = threading.Lock()
        self._aside: dict[int, tuple[int, Pixels]] = {}  # slot: newest row that needs it, frame
        self.given_up = False

    def copy_aside(self, slots: Slots) -> bool:
        """Keeps frames that are about to be overwritten; False once none is needed any more.

        Called by the learner's thread.
        """
        with self._lock:
            needed = [
                slot
                for slot in slots[self._source.last_row[slots] >= self._needed].tolist()
                if slot not in self._aside
            ]
            frames = np.empty((len(needed), self.nbytes), np.uint8)
            self._source.read(np.array(needed, np.int64), frames)
            for slot, frame in zip(needed, frames, strict=True):
                self._aside[slot] = int(self._source.last_row[slot]), frame
            if len(self._aside) * self.nbytes > ASIDE_NBYTES:
                self._give_up()
            return self._needed < self._end

    def read(self, slots: Slots, frames: Pixels) -> bool:
        """Copies frames as they were; False where they were given up. [F], [F, nbytes]"""
        self._source.read(slots, frames)
        with self._lock:
            for i, slot in enumerate(slots.tolist() if self._aside else ()):
                if slot in self._aside:
                    frames[i] = self._aside[slot][1]
            return not self.given_up

    def taken(self, row: int) -> None:
        """All rows before this one have their frames."""
        with self._lock:
            self._needed = row
            self._aside = {slot: kept for slot, kept in self._aside.items() if kept[0] >= row}

    def release(self) -> None:
        """Gives up what was not taken; may be called twice, by any thread."""
        with self._lock:
            self._give_up()

    def _give_up(self) -> None:
        self.given_up = True
        self._needed = self._end
        self._aside = {}


class ChunkFrames:
    """The frames of one chunk, in the order in which its rows number them."""

    def __init__(self, frozen: FrozenFrames, slots: Slots, dtype: np.dtype[Any], end: int) -> None:
        self.dtype = dtype
        self._frozen = frozen
        self._slots = slots  # [F]
        self._end = end  # of the rows
        self._at = 0

    def __len__(self) -> int:
        return len(self._slots)

    def take(self, most: int) -> NDArray[Any] | None:
        """Copies of the next frames, at most so many; None once all are taken or given up."""
        slots = self._slots[self._at : self._at + most]
        if not len(slots):
            return None
        frames = np.empty((len(slots), self._frozen.nbytes), np.uint8)
        if not self._frozen.read(slots, frames):
            return None
        self._at += len(slots)
        if self._at == len(self._slots):
            self._frozen.taken(self._end)
        return frames.view(self.dtype)[:, 0]


class FrozenStacks:
    """Rows of a ring whose stacks are slots of frames; chunk by chunk, each with its frames.

    `renumbered` gives the blocks of rows with the slots replaced by numbers within the chunk.
    """

    def __init__(
        self,
        rows: FrozenSlots,
        frames: FrozenFrames,
        dtype: np.dtype[Any],
        slots_of: Callable[[list[NDArray[Any]]], list[NDArray[Any]]],
    ) -> None:
        self.first = rows.first
        self.end = rows.end
        self.frames = frames
        self._rows = rows
        self._dtype = dtype
        self._slots_of = slots_of
        self._chunk: list[NDArray[Any]] = []  # blocks of the rows not taken yet

    def shared(self, count: int) -> ChunkFrames | None:
        """The frames of the next `count` rows."""
        start = self._rows.next
        chunk = self._rows.take(count)
        if chunk is None:
            return None
        self._chunk = chunk
        columns = self._slots_of(chunk)
        all_slots = np.concatenate([each.ravel() for each in columns])
        slots, number = np.unique(all_slots, return_inverse=True)
        for column, numbers in zip(columns, np.split(number, len(columns)), strict=True):
            column[:] = numbers.reshape(column.shape)
        return ChunkFrames(self.frames, slots.astype(np.int64), self._dtype, start + len(chunk[0]))

    def take(self, max_rows: int) -> list[NDArray[Any]] | None:
        """Copies of the next rows of the chunk, which refer to its frames by number."""
        if not self._chunk or not len(self._chunk[0]) or self.frames.given_up:
            return None
        taken = [block[:max_rows] for block in self._chunk]
        self._chunk = [block[max_rows:] for block in self._chunk]
        return taken

    def release(self) -> None:
        """Gives up what was not taken; may be called twice, by any thread."""
        self._rows.release()
        self.frames.release()
