"""Frames that many stacks share, each stored once: found again by a key, and compared in full.

Which stream of which environment a stack continues need not be known: whatever frame is pushed
again, by any actor, is found among those that were stored last.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import numpy as np
from numpy.typing import NDArray

RECENT = 2**15  # frames that are found again; a stream continues within far fewer
# Reserved beyond one frame per transition: the first of an episode, and what is found too late.
MARGIN = 32  # one for so many transitions
LEAST_MARGIN = 1024
MOST_AT_ONCE = 128  # frames that are stored: what is compared stays in the cache
SLOT_NBYTES = 16  # kept of each frame besides its pixels

Slots = NDArray[np.int64]
Pixels = NDArray[np.uint8]


def reserved_frames(transitions: int, depth: int) -> int:
    """Frames for which memory is reserved; all that so many transitions can have at most."""
    return min(transitions + transitions // MARGIN + LEAST_MARGIN, 2 * depth * transitions)


class FrameStore:
    """Frames of one size, each in a slot until no stored row refers to it.

    Owned by the learner's thread; another one may `read` slots meanwhile, and gives up what it read
    of overwritten ones (`frozen_rows.py`). Memory grows beyond what is `reserved` where stacks
    share fewer frames than usual.
    """

    def __init__(self, nbytes: int, *, reserved: int, most: int) -> None:
        self.frame_nbytes = nbytes
        self._reserved = reserved
        self._pixels = np.empty((reserved, nbytes), np.uint8)  # untouched pages cost nothing
        self._beyond = np.empty((0, nbytes), np.uint8)  # slots from `reserved` on
        self.last_row = np.empty(most, np.int64)  # number of the newest row that refers to a slot
        self._key = np.empty(most, np.int64)  # of the frame in a slot
        # A frame as few numbers: its key is their product with random ones. Slow movements change
        # few pixels, so that a sample of the pixels would not tell frames apart.
        widths = map(np.dtype, (np.uint64, np.uint32, np.uint16, np.uint8))
        self._word = next(each for each in widths if nbytes % each.itemsize == 0)
        chance = np.random.default_rng(0)
        count = nbytes // self._word.itemsize
        self._weights = chance.integers(2**63, size=count, dtype=np.uint64) * np.uint64(2) + 1
        # Large arrays that are made anew are pages made anew, which take more time than all else.
        self._scratch = np.empty((2, MOST_AT_ONCE, nbytes), np.uint8)
        self.clear()

    def clear(self) -> None:
        """Forgets all frames."""
        self._used = 0  # slots that were ever used
        self._free: list[int] = []  # those of them without a frame
        self._recent: OrderedDict[int, int] = OrderedDict()  # key: slot, the oldest first

    def __len__(self) -> int:
        """Frames stored now."""
        return self._used - len(self._free)

    def put(self, frames: Pixels, rows: NDArray[np.int64], *, oldest: int) -> Slots:
        """The slots of at most `MOST_AT_ONCE` frames, stored where they are not yet.
        [F, nbytes], [F] -> [F]

        `rows` are the numbers of the rows that refer to them, in rising order; `oldest` is the
        first number of a row that stays stored.
        """
        words = frames.view(self._word)  # [F, words]
        # A number for each frame; different frames rarely have the same.
        keys = np.einsum("fw,w->f", words, self._weights, dtype=np.uint64).view(np.int64).tolist()
        slots = self._find(keys, words, oldest)
        new = np.flatnonzero(slots < 0)
        if len(new):
            slots[new] = self._add(frames, words, keys, new)
        self.refer(slots, rows)
        return slots

    def refer(self, slots: Slots, rows: NDArray[np.int64]) -> None:
        """Rows of these numbers, in rising order, refer to these slots. [F], [F]"""
        self.last_row[slots] = np.maximum(self.last_row[slots], rows)  # of equal slots the last

    def _find(self, keys: list[int], words: NDArray[Any], oldest: int) -> Slots:
        """The slots of frames that are stored, -1 for others. [F]"""
        recent = self._recent
        slots = np.array([recent.get(key, -1) for key in keys], np.int64)  # [F]
        found = np.flatnonzero(slots >= 0)
        if len(found):
            stored = self._scratch[0, : len(found)]
            self.read(slots[found], stored)
            differs = self._differ(stored, words, found)
            differs |= self.last_row[slots[found]] < oldest  # then its slot may be given away
            slots[found[differs]] = -1
        return slots

    def _differ(self, frames: Pixels, words: NDArray[Any], index: Slots) -> NDArray[np.bool_]:
        """Which frames differ from those at `index`. [F, nbytes], [F', words], [F]"""
        others = self._scratch[1, : len(index)].view(self._word)
        words.take(index, axis=0, out=others, mode="clip")
        differ: NDArray[np.bool_] = (frames.view(self._word) != others).any(axis=1)
        return differ

    def _add(self, frames: Pixels, words: NDArray[Any], keys: list[int], new: Slots) -> Slots:
        """Stores the frames at `new`, equal ones once. [F']"""
        first: dict[int, int] = {}
        same_as = np.array([first.setdefault(keys[i], i) for i in new.tolist()])  # [F']
        again = np.flatnonzero(same_as != new)
        if len(again):
            first_ones = self._scratch[0, : len(again)]
            frames.take(same_as[again], axis=0, out=first_ones, mode="clip")
            differ = again[self._differ(first_ones, words, new[again])]
            same_as[differ] = new[differ]  # other frames with the same key
        added = np.unique(same_as)  # indices of frames
        slots = self._take_slots(len(added))
        self._write(slots, frames[added])
        self.last_row[slots] = -1
        recent = self._recent
        for i, slot in zip(added.tolist(), slots.tolist(), strict=True):
            self._key[slot] = keys[i]
            recent[keys[i]] = slot
            recent.move_to_end(keys[i])
        while len(recent) > RECENT:
            recent.popitem(last=False)
        return slots[np.searchsorted(added, same_as)]

    def _take_slots(self, count: int) -> Slots:
        """Slots without a frame. [count]"""
        split = max(0, len(self._free) - count)
        again, self._free = self._free[split:], self._free[:split]
        for slot, key in zip(again, self._key[again].tolist(), strict=True):
            if self._recent.get(key) == slot:
                del self._recent[key]
        fresh = range(self._used, self._used + count - len(again))
        self._used = fresh.stop
        slots = np.array([*again, *fresh], np.int64)
        missing = self._used - self._reserved - len(self._beyond)
        if missing > 0:  # a copy: a thread that reads has the memory of before
            held = len(self._beyond)
            rows = held + max(missing, held, LEAST_MARGIN)
            grown = np.empty((rows, self.frame_nbytes), np.uint8)
            grown[:held] = self._beyond
            self._beyond = grown
        return slots

    def _write(self, slots: Slots, frames: Pixels) -> None:
        inside = slots < self._reserved
        if inside.all():
            self._pixels[slots] = frames
        else:
            self._pixels[slots[inside]] = frames[inside]
            self._beyond[slots[~inside] - self._reserved] = frames[~inside]

    def read(self, slots: NDArray[np.integer[Any]], frames: Pixels) -> None:
        """Copies the frames of these slots. [F], [F, nbytes]"""
        beyond = self._beyond
        # Slots are valid; `clip` only spares numpy a copy of the output.
        self._pixels.take(slots, axis=0, out=frames, mode="clip")
        if self._used > self._reserved:
            outside = np.flatnonzero(slots >= self._reserved)
            frames[outside] = beyond[slots[outside] - self._reserved]

    def release(self, slots: Slots, *, oldest: int) -> None:
        """Frees those of these slots to which no row from number `oldest` on refers."""
        dead = np.unique(slots[self.last_row[slots] < oldest])
        self._free += dead.tolist()

    def release_unused(self, *, oldest: int) -> None:
        """Frees every slot whose last row is older than `oldest`."""
        self._free = np.flatnonzero(self.last_row[: self._used] < oldest).tolist()
