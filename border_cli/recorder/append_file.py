"""A file that only grows and stays whole when the disk is full."""

from __future__ import annotations

import errno
import os
from collections import deque
from pathlib import Path

import numpy as np

from border_cli.core.types import State

MAX_WAITING = 10_000  # records kept in memory until there is room, a few megabytes


class AppendFile:
    """Each record reaches the file whole and in order, or waits in memory for its turn.

    Unbuffered, so another process can read whatever `append` has returned from. Owned by one
    thread.
    """

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path = path
        self._file = path.open("ab", buffering=0)
        self._waiting: deque[bytes] = deque()
        self._torn = 0  # bytes of the first waiting record that stand in the file already
        self._lost = 0

    def enqueue(self, record: bytes) -> None:
        """Keeps a record for the next `append` or `flush`."""
        self._waiting.append(record)
        if len(self._waiting) > MAX_WAITING:
            del self._waiting[1]  # not the first: a part of it may stand in the file
            self._lost += 1

    def append(self, record: bytes) -> None:
        """Writes what waits and then `record`. Raises `OSError` and keeps them where it cannot."""
        self.enqueue(record)
        self.flush()

    def flush(self) -> None:
        """Tries again to write what waits."""
        while self._waiting:
            record = self._waiting[0]
            # Fewer bytes than asked are written where the disk fills up.
            self._torn += self._file.write(record[self._torn :])
            if self._torn == len(record):
                self._waiting.popleft()
                self._torn = 0

    def sync(self) -> None:
        """Makes what was written survive a crash of the machine."""
        os.fsync(self._file.fileno())

    def position(self) -> State:
        """Where the whole records end; those that wait for room are a part of it.

        They would be lost otherwise where the file is cut there, or where this process is killed
        before there is room.
        """
        size = os.fstat(self._file.fileno()).st_size - self._torn
        position: State = {"size": max(0, size)}
        if self._waiting:
            position["waiting"] = np.frombuffer(b"".join(self._waiting), dtype=np.uint8)  # [bytes]
        return position

    def close(self) -> None:
        """Writes what waits. Raises `OSError` where records are lost; may be called twice."""
        if self._file.closed:
            return
        try:
            self.flush()
        finally:
            self._file.close()
        if self._lost:
            message = f"{self._lost} rows were lost while there was no room for them"
            raise OSError(errno.ENOSPC, message, str(self._path))
