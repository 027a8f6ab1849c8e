"""A text that one process leaves for another in memory that outlives it."""

from __future__ import annotations

import logging
import os
from multiprocessing import reduction
from typing import Any

from border_cli.process.memory import anonymous_file

log = logging.getLogger(__name__)


class NoteFile:
    """An anonymous file with one writer at a time, who tells in some other way when it is whole.

    No pipe: nobody waits for a reader, and what a killed writer left half blocks nobody.
    Picklable on the way into a child process only.
    """

    _fd = -1

    def __init__(self) -> None:
        self._fd = anonymous_file()

    def write(self, text: bytes) -> None:
        """Replaces what is there; it is empty afterwards where the system refuses so much."""
        os.ftruncate(self._fd, 0)
        left, at = memoryview(text), 0
        try:
            while left:
                written = os.pwrite(self._fd, left, at)
                left, at = left[written:], at + written
        except OSError as error:
            os.ftruncate(self._fd, 0)
            log.warning("could not store %d bytes: %s", len(text), error)

    def read(self) -> bytes:
        """All of it; nothing once it is closed."""
        if self._fd < 0:
            return b""
        parts, at = [], 0
        while part := os.pread(self._fd, os.fstat(self._fd).st_size, at):
            parts.append(part)
            at += len(part)
        return b"".join(parts)

    def close(self) -> None:
        """Gives the file up; may be called twice."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    __del__ = close  # of one that nobody came to use

    def __getstate__(self) -> dict[str, Any]:
        return {"fd": reduction.DupFd(self._fd)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._fd = state["fd"].detach()
