"""The newest weights for actors in other processes: in shared memory, or packed to be sent."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from border_cli.actor_manager.mapped import Mapped
from border_cli.actor_manager.weights import ArrayForms
from border_cli.core.types import Form, Snapshot
from border_cli.system.shared_memory import SharedArrays, fence, integers

# Integers of each of the two places in shared memory.
WRITING: Final = 0  # version that is being written, or was written last
COMPLETE: Final = 1  # version that is there completely
OPT_STEPS: Final = 2
ENV_STEPS: Final = 3
WARM_UP: Final = 4
PLACE_WORDS: Final = 8

CACHE_LINE: Final = 64  # bytes


def packed(snapshot: Snapshot) -> NDArray[np.uint8]:
    """All of it as one array, for other processes, which act with it where it lies.

    Matrices are stored by column, as `x.dot(weight.T)` reads them.
    """
    numbers = np.array([snapshot.opt_steps, snapshot.env_steps, snapshot.warm_up], np.int64)
    arrays = [numbers, *snapshot.arrays.values()]
    places, size = _places([(each.dtype, each.shape) for each in arrays])
    memory = np.zeros(size, np.uint8)
    for array, place in zip(arrays, places, strict=True):
        memory[place] = array.ravel(order="F" if array.ndim == 2 else "C").view(np.uint8)
    return memory


def unpacked(memory: NDArray[np.uint8], forms: ArrayForms) -> Snapshot:
    """The snapshot in this memory, whose arrays have these forms in their order; not a copy."""
    all_forms: list[Form] = [(np.dtype(np.int64), (3,)), *forms.values()]
    found: list[NDArray[Any]] = []
    for (dtype, shape), place in zip(all_forms, _places(all_forms)[0], strict=True):
        order: Literal["F", "C"] = "F" if len(shape) == 2 else "C"
        found.append(memory[place].view(dtype).reshape(shape, order=order))
    opt_steps, env_steps, warm_up = found[0].tolist()
    return Snapshot(
        opt_steps=opt_steps,
        env_steps=env_steps,
        warm_up=bool(warm_up),
        arrays=dict(zip(forms, found[1:], strict=True)),
    )


def _places(forms: Sequence[Form]) -> tuple[list[slice], int]:
    """Where arrays of these forms lie, each on a cache line of its own, and the bytes of all."""
    places: list[slice] = []
    at = 0
    for dtype, shape in forms:
        size = dtype.itemsize * math.prod(shape)
        places.append(slice(at, at + size))
        at += -(-size // CACHE_LINE) * CACHE_LINE
    return places, at


class SharedWeightSlot(Mapped):
    """The newest snapshot and its version; the learner writes, actors copy, without waiting.

    Two places are written in turn, each with its version before and after its arrays. A reader
    that finds two different versions around what it copied was overtaken and copies the newest.
    """

    crossing = ("_names", "_shared")

    def __init__(self, forms: ArrayForms) -> None:
        self._names = list(forms)
        place: list[Form] = [(np.dtype(np.int64), (PLACE_WORDS,)), *forms.values()]
        self._shared = SharedArrays([(np.dtype(np.int64), (1,)), *place, *place])
        self._map()

    def _map(self) -> None:
        newest, *rest = self._shared.arrays
        half = len(rest) // 2
        self._newest = integers(newest)
        self._places: list[tuple[memoryview[int], list[NDArray[Any]]]] = [
            (integers(words), arrays) for words, *arrays in (rest[:half], rest[half:])
        ]

    def publish(self, snapshot: Snapshot) -> None:
        """Copies it in and makes it the newest."""
        version = self._newest[0] + 1
        words, arrays = self._places[version % 2]
        words[WRITING] = version
        fence()
        for name, array in zip(self._names, arrays, strict=True):
            np.copyto(array, snapshot.arrays[name], casting="no")
        words[OPT_STEPS] = snapshot.opt_steps
        words[ENV_STEPS] = snapshot.env_steps
        words[WARM_UP] = snapshot.warm_up
        fence()
        words[COMPLETE] = version
        fence()
        self._newest[0] = version

    def newer_than(self, version: int) -> tuple[int, Snapshot] | None:
        """The newest version and a copy of its snapshot, or None where `version` is the newest."""
        while (newest := self._newest[0]) != version:
            snapshot = self._copy(newest)
            if snapshot is not None:
                return newest, snapshot
        return None

    def _copy(self, version: int) -> Snapshot | None:
        """A copy of that version, or None where it is no longer there."""
        words, arrays = self._places[version % 2]
        if words[COMPLETE] != version:
            return None
        fence()
        snapshot = Snapshot(
            opt_steps=words[OPT_STEPS],
            env_steps=words[ENV_STEPS],
            warm_up=bool(words[WARM_UP]),
            arrays={name: array.copy() for name, array in zip(self._names, arrays, strict=True)},
        )
        fence()
        return snapshot if words[WRITING] == version else None

    def close(self) -> None:
        """Gives the memory up, which goes with this object."""
        self._shared.close()
