"""A store for frames that many stacks share; it stores each frame once.

A frame is found by a key and then compared pixel by pixel. It does not matter which environment a
stack comes from: the most recent frames of all actors are searched.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import numpy as np
from numpy.typing import NDArray

RECENT = 2**15  # recent frames searched for duplicates, which usually come much sooner
# Frames reserved beyond one per transition: first frames of episodes, and missed duplicates.
MARGIN = 32  # transitions per extra frame
LEAST_MARGIN = 1024
MOST_AT_ONCE = 128  # frames stored per call; few enough to stay in the CPU cache
SLOT_NBYTES = 16  # bytes stored per frame in addition to its pixels

Slots = NDArray[np.int64]
Pixels = NDArray[np.uint8]


def reserved_frames(transitions: int, depth: int) -> int:
    """Returns how many frames to reserve memory for; never more than all stacks can contain."""
    return min(transitions + transitions // MARGIN + LEAST_MARGIN, 2 * depth * transitions)


class FrameStore:
    """Frames of one size, each of which occupies a slot while a stored transition refers to it.

    Owned by the learner's thread. Another thread may call `read` meanwhile, but must discard what
    it read from slots that were overwritten (`ring_snapshot.py`). If stacks share fewer frames than
    usual, memory grows beyond `reserved`.
    """

    def __init__(self, nbytes: int, *, reserved: int, most: int) -> None:
        self.frame_nbytes = nbytes
        self._reserved = reserved
        self._pixels = np.empty((reserved, nbytes), np.uint8)  # unused pages take no memory
        self._beyond = np.empty((0, nbytes), np.uint8)  # slots beyond `reserved`
        self.last_row = np.empty(most, np.int64)  # newest transition that refers to each slot
        self._key = np.empty(most, np.int64)  # key of the frame in each slot
        # A frame's key is the dot product of its pixels, read as wide integers, with random
        # weights. All pixels count, because slow movements change only a few of them.
        widths = map(np.dtype, (np.uint64, np.uint32, np.uint16, np.uint8))
        self._word = next(width for width in widths if nbytes % width.itemsize == 0)
        rng = np.random.default_rng(0)
        count = nbytes // self._word.itemsize
        self._weights = rng.integers(2**63, size=count, dtype=np.uint64) * np.uint64(2) + 1
        # Allocated once, because the page faults of new large arrays would dominate the run time.
        self._scratch = np.empty((2, MOST_AT_ONCE, nbytes), np.uint8)
        self.clear()

    def clear(self) -> None:
        """Removes all frames."""
        self._used = 0  # slots used so far, including freed ones
        self._free: list[int] = []  # used slots that no longer contain a frame
        self._recent: OrderedDict[int, int] = OrderedDict()  # slots by key, oldest first

    def put(self, frames: Pixels, rows: NDArray[np.int64], *, oldest: int) -> Slots:
        """Returns the slots of up to `MOST_AT_ONCE` frames, storing new ones. [F, nbytes], [F] ->
        [F]

        `rows` are the numbers of the transitions that refer to the frames, in ascending order.
        `oldest` is the number of the oldest transition that remains stored.
        """
        words = frames.view(self._word)  # [F, words]
        # Different frames rarely have the same key.
        keys = np.einsum("fw,w->f", words, self._weights, dtype=np.uint64).view(np.int64).tolist()
        slots = self._find(keys, words, oldest)
        new = np.flatnonzero(slots < 0)
        if len(new):
            slots[new] = self._add(frames, words, keys, new)
        self.refer(slots, rows)
        return slots

    def refer(self, slots: Slots, rows: NDArray[np.int64]) -> None:
        """Records that transitions `rows`, in ascending order, refer to these slots. [F], [F]"""
        self.last_row[slots] = np.maximum(self.last_row[slots], rows)  # last duplicate wins

    def _find(self, keys: list[int], words: NDArray[Any], oldest: int) -> Slots:
        """Returns the slots of the frames, or -1 for frames that are not stored. [F]"""
        recent = self._recent
        slots = np.array([recent.get(key, -1) for key in keys], np.int64)  # [F]
        matches = np.flatnonzero(slots >= 0)
        if len(matches):
            candidates = self._scratch[0, : len(matches)]
            self.read(slots[matches], candidates)
            differs = self._differ(candidates, words, matches)
            differs |= self.last_row[slots[matches]] < oldest  # then the slot may be reused
            slots[matches[differs]] = -1
        return slots

    def _differ(self, frames: Pixels, words: NDArray[Any], index: Slots) -> NDArray[np.bool_]:
        """Returns which frames differ from `words[index]`. [F, nbytes], [F', words], [F] -> [F]"""
        expected = self._scratch[1, : len(index)].view(self._word)
        words.take(index, axis=0, out=expected, mode="clip")
        differ: NDArray[np.bool_] = (frames.view(self._word) != expected).any(axis=1)
        return differ

    def _add(self, frames: Pixels, words: NDArray[Any], keys: list[int], new: Slots) -> Slots:
        """Stores the frames at indices `new` without duplicates, and returns their slots. [F']"""
        first_index: dict[int, int] = {}
        same_as = np.array([first_index.setdefault(keys[i], i) for i in new.tolist()])  # [F']
        repeats = np.flatnonzero(same_as != new)
        if len(repeats):
            originals = self._scratch[0, : len(repeats)]
            frames.take(same_as[repeats], axis=0, out=originals, mode="clip")
            differ = repeats[self._differ(originals, words, new[repeats])]
            same_as[differ] = new[differ]  # different frames with the same key
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
        """Returns slots without a frame, and allocates memory for them if needed. [count]"""
        split = max(0, len(self._free) - count)
        reused, self._free = self._free[split:], self._free[:split]
        for slot, key in zip(reused, self._key[reused].tolist(), strict=True):
            if self._recent.get(key) == slot:
                del self._recent[key]
        fresh = range(self._used, self._used + count - len(reused))
        self._used = fresh.stop
        slots = np.array([*reused, *fresh], np.int64)
        missing = self._used - self._reserved - len(self._beyond)
        if missing > 0:  # copied, because another thread may be reading the old array
            allocated = len(self._beyond)
            total = allocated + max(missing, allocated, LEAST_MARGIN)
            grown = np.empty((total, self.frame_nbytes), np.uint8)
            grown[:allocated] = self._beyond
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
        """Copies the frames in these slots to `frames`. [F], [F, nbytes]"""
        beyond = self._beyond
        # All slots are valid; `clip` only saves numpy from buffering the output.
        self._pixels.take(slots, axis=0, out=frames, mode="clip")
        if self._used > self._reserved:
            outside = np.flatnonzero(slots >= self._reserved)
            frames[outside] = beyond[slots[outside] - self._reserved]

    def release(self, slots: Slots, *, oldest: int) -> None:
        """Frees the given slots unless a transition with number >= `oldest` refers to them."""
        unused = np.unique(slots[self.last_row[slots] < oldest])
        self._free += unused.tolist()

    def release_unused(self, *, oldest: int) -> None:
        """Frees every slot unless a transition with number >= `oldest` refers to it."""
        unused = np.flatnonzero(self.last_row[: self._used] < oldest)
        self.last_row[unused] = -1  # `put` no longer finds these frames, whatever its `oldest`
        self._free = unused.tolist()
