"""A file that only grows and stays whole when the disk is full."""

from __future__ import annotations

import errno
import logging
import os
from collections import deque
from collections.abc import Callable, Mapping
from io import FileIO
from pathlib import Path
from typing import Any

import numpy as np

from border_cli.core.files import refuse_deleted
from border_cli.core.types import State

log = logging.getLogger(__name__)

MAX_WAITING = 10_000  # records kept in memory until there is room, a few megabytes


class AppendFile:
    """Each record reaches the file whole and in order, or waits in memory for its turn.

    Unbuffered, so another process can read whatever `append` has returned from. Owned by one
    thread.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = FileIO(path, "ab")
        self._waiting: deque[bytes] = deque()
        self._torn = 0  # bytes of the first waiting record that are in the file already
        self._lost = 0

    def enqueue(self, record: bytes) -> None:
        """Keeps a record for the next `append` or `flush`."""
        self._waiting.append(record)
        if len(self._waiting) > MAX_WAITING:
            del self._waiting[1]  # not the first: a part of it may be in the file
            self._lost += 1

    def append(self, record: bytes) -> None:
        """Writes what waits and then `record`. Raises `OSError` and keeps them where it cannot, and
        `RunDeleted` where the file was deleted."""
        refuse_deleted(self._path, self._file.fileno())
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
        size, waiting = os.fstat(self._file.fileno()).st_size - self._torn, b"".join(self._waiting)
        position: State = {"size": max(0, size)}
        if waiting:
            position["waiting"] = np.frombuffer(waiting, dtype=np.uint8)  # [bytes]
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
            message = f"{self._lost} rows were lost for lack of space"
            raise OSError(errno.ENOSPC, message, str(self._path))


def cut(
    path: Path, position: Mapping[str, Any], keep: Callable[[bytes], None] = lambda _: None
) -> bytes:
    """Cuts a file back to an `AppendFile.position`; `keep` is given what is cut off, before.

    Returns the records that waited for room when the position was taken and have not reached the
    file since. A file that is missing or too short is named and left as it is.
    """
    size = int(position["size"])
    waiting = position["waiting"].tobytes() if "waiting" in position else b""
    try:
        file = path.open("rb+")
    except FileNotFoundError:
        log.warning("%s is missing; its earlier records are lost", path)
        return waiting
    with file:
        end = file.seek(0, os.SEEK_END)
        if end < size:
            log.warning(
                "%s has %d bytes, %d fewer than at the checkpoint: rows are missing",
                path, end, size - end,
            )  # fmt: skip
            return waiting
        file.seek(size)
        beyond = file.read()
        if beyond.startswith(waiting):  # there was room soon after
            size, beyond, waiting = size + len(waiting), beyond[len(waiting) :], b""
        if not waiting.startswith(beyond):  # else nothing but a part of what waited
            keep(beyond)
        file.truncate(size)
    return waiting
