"""Memory that several processes see, and a pipe to wake one that waits.

Nothing of either has a name, so nothing remains once the processes that hold it have ended.
"""

from __future__ import annotations

import mmap
import os
import select
import tempfile
import threading
from collections.abc import Sequence
from multiprocessing import reduction
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from border_cli.core.types import Form

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer as Buffer


CACHE_LINE = 64  # bytes; arrays of different writers never share one

_any_lock = threading.Lock()


def fence() -> None:
    """A memory barrier: other processes see this thread's earlier writes before its later ones.

    Numpy and memoryview alone promise no order between processors. Taking a lock is a full barrier
    on x86; on processors where it is less, a wake-up may be missed, which costs the second after
    which every wait looks again.
    """
    with _any_lock:
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

    __del__ = close  # of a segment that was never used

    def __getstate__(self) -> dict[str, Any]:
        return {"forms": self._forms, "fd": reduction.DupFd(self._fd)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._forms = state["forms"]
        self._fd = state["fd"].detach()
        self._map()


def integers(array: NDArray[Any]) -> memoryview[int]:
    """A view of int64 numbers that reads or writes one in a third of the time of an array."""
    return cast("memoryview[int]", memoryview(cast("Buffer", array)))


def floats(array: NDArray[Any]) -> memoryview[float]:
    """A view of float64 numbers that is as fast for single ones."""
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


class WakePipe:
    """One process waits, others wake it; wake-ups that came before the wait end it at once.

    A pipe: it works between any two processes and needs no name, and a process that is killed while
    it uses it leaves it intact. Picklable on the way into a child process only.
    """

    _read_end = _write_end = -1

    def __init__(self) -> None:
        self._read_end, self._write_end = os.pipe()
        self._prepare()

    def _prepare(self) -> None:
        os.set_blocking(self._read_end, False)
        os.set_blocking(self._write_end, False)
        self._poll = select.poll()
        self._poll.register(self._read_end, select.POLLIN)

    def wake(self) -> None:
        """Ends the current wait, or the next one; does nothing once it is closed."""
        if self._write_end < 0:
            return
        try:
            os.write(self._write_end, b"!")
        except BlockingIOError:
            return  # so many wake-ups are unread that one more changes nothing

    def wait(self, timeout_s: float) -> None:
        """Returns once it was woken since the last wait, or after `timeout_s`."""
        if self._poll.poll(max(0.0, timeout_s) * 1000):
            self.drain()

    def drain(self) -> None:
        """Forgets the wake-ups so far."""
        try:
            os.read(self._read_end, 65536)
        except BlockingIOError:
            return

    def fileno(self) -> int:
        """Readable while a wake-up is unread: for waits on several things."""
        return self._read_end

    def close(self) -> None:
        """Closes both ends; may be called twice."""
        ends, self._read_end, self._write_end = (self._read_end, self._write_end), -1, -1
        for fd in ends:
            if fd >= 0:
                os.close(fd)

    __del__ = close  # of one that was never used

    def __getstate__(self) -> dict[str, Any]:
        return {"read": reduction.DupFd(self._read_end), "write": reduction.DupFd(self._write_end)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._read_end, self._write_end = state["read"].detach(), state["write"].detach()
        self._prepare()
