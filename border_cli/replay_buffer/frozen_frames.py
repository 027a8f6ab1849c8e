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


class FrozenStacks:
    """Rows of a ring whose stacks are slots of frames; each chunk has its frames.

    A chunk begins with its frames, and the slots of its rows are replaced by numbers of these.
    """

    def __init__(
        self,
        rows: FrozenSlots,
        frames: FrozenFrames,
        entry: np.dtype[Any],
        slots_of: Callable[[list[NDArray[Any]]], list[NDArray[Any]]],
    ) -> None:
        self.oldest, self.first, self.end = rows.oldest, rows.first, rows.end
        self.row_nbytes = rows.row_nbytes + frames.nbytes
        self.frames = frames
        self._rows = rows
        self._entry = entry
        self._slots_of = slots_of

    def take(self, count: int) -> list[NDArray[Any]] | None:
        """The frames of the next rows, and copies of these; None once all are taken or given up."""
        blocks = self._rows.take(count)
        if blocks is None:
            return None
        columns = self._slots_of(blocks)
        all_slots = np.concatenate([each.ravel() for each in columns])
        slots, number = np.unique(all_slots, return_inverse=True)
        for column, numbers in zip(columns, np.split(number, len(columns)), strict=True):
            column[:] = numbers.reshape(column.shape)
        frames = np.empty((len(slots), self.frames.nbytes), np.uint8)
        if not self.frames.read(slots.astype(np.int64), frames):
            return None
        self.frames.taken(self._rows.next)
        return [frames.view(self._entry)[:, 0], *blocks]

    def release(self) -> None:
        """Gives up what was not taken; may be called twice, by any thread."""
        self._rows.release()
        self.frames.release()
