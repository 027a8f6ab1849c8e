"""The newest weights for actors in other processes, in shared memory or packed for sending."""

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

# Words of each of the two buffers in shared memory.
WRITING: Final = 0  # version of the last write that was started
COMPLETE: Final = 1  # version of the last write that was completed
OPT_STEPS: Final = 2
ENV_STEPS: Final = 3
WARM_UP: Final = 4
BUFFER_WORDS: Final = 8

CACHE_LINE: Final = 64  # bytes


def pack_snapshot(snapshot: Snapshot) -> NDArray[np.uint8]:
    """Packs a snapshot into a single byte array, which other processes can use without copying.

    Matrices are stored in column-major order, as `x.dot(weight.T)` reads them.
    """
    numbers = np.array([snapshot.opt_steps, snapshot.env_steps, snapshot.warm_up], np.int64)
    arrays = [numbers, *snapshot.arrays.values()]
    slices, size = _lay_out([(part.dtype, part.shape) for part in arrays])
    memory = np.zeros(size, np.uint8)
    for array, section in zip(arrays, slices, strict=True):
        memory[section] = array.ravel(order="F" if array.ndim == 2 else "C").view(np.uint8)
    return memory


def unpack_snapshot(memory: NDArray[np.uint8], forms: ArrayForms) -> Snapshot:
    """Returns the snapshot in `memory` without copying; `forms` describes its arrays."""
    all_forms: list[Form] = [(np.dtype(np.int64), (3,)), *forms.values()]
    arrays: list[NDArray[Any]] = []
    for (dtype, shape), section in zip(all_forms, _lay_out(all_forms)[0], strict=True):
        order: Literal["F", "C"] = "F" if len(shape) == 2 else "C"
        arrays.append(memory[section].view(dtype).reshape(shape, order=order))
    opt_steps, env_steps, warm_up = arrays[0].tolist()
    return Snapshot(
        opt_steps=opt_steps,
        env_steps=env_steps,
        warm_up=bool(warm_up),
        arrays=dict(zip(forms, arrays[1:], strict=True)),
    )


def _lay_out(forms: Sequence[Form]) -> tuple[list[slice], int]:
    """Returns the position of each array, aligned to cache lines, and the total size in bytes."""
    slices: list[slice] = []
    offset = 0
    for dtype, shape in forms:
        size = dtype.itemsize * math.prod(shape)
        slices.append(slice(offset, offset + size))
        offset += -(-size // CACHE_LINE) * CACHE_LINE
    return slices, offset


class SharedWeightSlot(Mapped):
    """The newest snapshot and its version. The learner writes and actors copy without blocking.

    Two buffers are written alternately, with the version stored before and after the arrays. If a
    reader finds two different versions, the data changed while it was copied, and it tries again.
    """

    pickled = ("_names", "_shared")

    def __init__(self, forms: ArrayForms) -> None:
        self._names = list(forms)
        buffer: list[Form] = [(np.dtype(np.int64), (BUFFER_WORDS,)), *forms.values()]
        self._shared = SharedArrays([(np.dtype(np.int64), (1,)), *buffer, *buffer])
        self._map()

    def _map(self) -> None:
        newest, *rest = self._shared.arrays
        half = len(rest) // 2
        self._newest = integers(newest)
        self._places: list[tuple[memoryview[int], list[NDArray[Any]]]] = [
            (integers(words), arrays) for words, *arrays in (rest[:half], rest[half:])
        ]

    def publish(self, snapshot: Snapshot) -> None:
        """Copies a snapshot to shared memory and makes it the newest."""
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
        """Returns the newest version and a copy of its snapshot, or None if `version` is newest."""
        while (newest := self._newest[0]) != version:
            snapshot = self._copy(newest)
            if snapshot is not None:
                return newest, snapshot
        return None

    def _copy(self, version: int) -> Snapshot | None:
        """Returns a copy of this version, or None if it has been overwritten."""
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
        """Releases the memory, which is freed together with this object."""
        self._shared.close()
