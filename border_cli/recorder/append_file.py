"""A file that only grows and stays whole when the disk is full."""

from __future__ import annotations

import logging
import os
from io import FileIO
from pathlib import Path

from border_cli.system.files import refuse_deleted

log = logging.getLogger(__name__)


class AppendFile:
    """Takes each record whole or not at all. Owned by one thread.

    Unbuffered, so another process can read whatever `append` has returned from.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = FileIO(path, "ab")

    @property
    def size(self) -> int:
        """Where the records end, in bytes."""
        return os.fstat(self._file.fileno()).st_size

    def append(self, record: bytes) -> None:
        """Raises `OSError` where the disk does not take the record, and `RunDeleted` where the file
        was deleted."""
        refuse_deleted(self._path, self._file.fileno())
        size, left = self.size, memoryview(record)
        try:
            while left:  # fewer bytes than asked are written where the disk fills up
                left = left[self._file.write(left) :]
        except OSError:
            self._file.truncate(size)
            raise

    def close(self) -> None:
        """May be called twice."""
        self._file.close()


def cut(path: Path, size: int) -> None:
    """Drops what was recorded after a checkpoint; a file that is shorter, or gone, is named."""
    if not path.exists():
        log.warning("%s is missing; its earlier records are lost", path)
        return
    with path.open("rb+") as file:
        end = file.seek(0, os.SEEK_END)
        if end < size:
            log.warning(
                "%s has %d bytes, %d fewer than at the checkpoint: rows are missing",
                path, end, size - end,
            )  # fmt: skip
            return
        file.truncate(size)
