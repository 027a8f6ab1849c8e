"""Memory that several processes see, and nothing of it remains when they are gone."""

from __future__ import annotations

import mmap
import os
import tempfile
import threading
from collections.abc import Sequence
from multiprocessing import reduction
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer as Buffer

Form: TypeAlias = tuple[np.dtype[Any], tuple[int, ...]]  # type and shape of one array

CACHE_LINE = 64  # bytes; arrays of different writers never share one

_anything = threading.Lock()


def fence() -> None:
    """What this thread wrote before is seen by others before it reads or writes what follows.

    Numpy and memoryview alone promise no order between processors. Taking a lock is a full barrier
    on x86; on processors where it is less, a wake-up may be missed, which costs the second after
    which everybody who waits looks again.
    """
    with _anything:
        pass


class SharedArrays:
    """Arrays of zeros in one anonymous segment; picklable on the way into a child process only.

    The segment has no name, so it lives exactly as long as a process that has it open or mapped,
    however these processes end.
    """

    _fd = -1

    def __init__(self, forms: Sequence[Form]) -> None:
        self._forms = list(forms)
        self._fd = anonymous_file()
        os.ftruncate(self._fd, max(1, _end(self._forms)))
        self._map()

    def _map(self) -> None:
        segment = mmap.mmap(self._fd, 0)
        self.arrays: list[NDArray[Any]] = [
            np.ndarray(shape, dtype, segment, offset)
            for (dtype, shape), offset in zip(self._forms, _offsets(self._forms), strict=True)
        ]

    def close(self) -> None:
        """Gives the segment up; it is unmapped once the last array of it is dropped."""
        self.arrays = []
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    __del__ = close  # of a segment that nobody came to use

    def __getstate__(self) -> dict[str, Any]:
        return {"forms": self._forms, "fd": reduction.DupFd(self._fd)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._forms = state["forms"]
        self._fd = state["fd"].detach()
        self._map()


def whole_numbers(array: NDArray[Any]) -> memoryview[int]:
    """The same numbers, read and written one at a time three times as fast as by an array."""
    return cast("memoryview[int]", memoryview(cast("Buffer", array)))


def real_numbers(array: NDArray[Any]) -> memoryview[float]:
    """The same for float64."""
    return cast("memoryview[float]", memoryview(cast("Buffer", array)))


def anonymous_file() -> int:
    """A file without a name, open for reading and writing; the caller closes it."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("border_cli")
    with tempfile.TemporaryFile() as file:  # has no name any more either
        return os.dup(file.fileno())


def _offsets(forms: Sequence[Form]) -> list[int]:
    offsets, offset = [], 0
    for dtype, shape in forms:
        offsets.append(offset)
        nbytes = dtype.itemsize * int(np.prod(shape))
        offset += -(-nbytes // CACHE_LINE) * CACHE_LINE
    return offsets


def _end(forms: Sequence[Form]) -> int:
    return _offsets([*forms, (np.dtype(np.int8), (0,))])[-1]
