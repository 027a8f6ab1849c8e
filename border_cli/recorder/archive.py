"""Where the rows go that a resumed run drops, because it records them again."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from border_cli.core.files import not_through_links
from border_cli.recorder.append_file import AppendFile

log = logging.getLogger(__name__)


class Archive:
    """Nothing that was saved is lost: it stands in a file beside, or waits for room in memory.

    Owned by the recorder whose rows they are.
    """

    def __init__(self) -> None:
        self._files: list[AppendFile] = []  # whose rows wait for room

    def cut(self, path: Path, position: Mapping[str, Any], into: Path) -> bytes:
        """Moves what `path` holds beyond an `AppendFile.position` to the end of `into`.

        Returns the records that waited for room when the position was taken and have not reached
        the file since. A file that is too short is named and left as it is.
        """
        size, waiting = int(position["size"]), _waiting(position)
        try:
            file = open(path, "rb+", opener=not_through_links)  # noqa: SIM115 - its opener
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
            if not waiting.startswith(beyond):  # else nothing but what waited, and waits again
                self._keep(beyond, into)
            # A crash before this line leaves the rows in both files; they are never in neither.
            file.truncate(size)
        return waiting

    def _keep(self, rows: bytes, into: Path) -> None:
        file = AppendFile(into)
        file.enqueue(rows)
        try:
            file.flush()
            file.sync()
        except OSError as error:
            log.warning("could not write superseded rows to %s yet (%s)", into, error)
            self._files.append(file)
        else:
            file.close()

    def flush(self) -> None:
        """Tries again to write what waits."""
        for file in self._files:
            file.flush()

    def close(self) -> None:
        """Writes what waits; may be called twice."""
        with ExitStack() as stack:
            for file in self._files:
                stack.callback(file.close)


def _waiting(position: Mapping[str, Any]) -> bytes:
    return position["waiting"].tobytes() if "waiting" in position else b""
