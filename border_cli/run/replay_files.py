"""Transitions on the disk: chunks in `checkpoints/replay/` that checkpoints share.

Every transition is written once. A chunk is a range of them and never changes: a file of the `.npy`
arrays that the buffer gives for it, one behind another. It can be read alone. Chunks are not
merged: very short save intervals with a large replay buffer leave thousands of them.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex
from typing import Any

import numpy as np
from numpy.typing import NDArray

from border_cli.core.interfaces import FrozenRows, ReplayBuffer
from border_cli.errors import CheckpointError
from border_cli.run.manifest import Chunk, SavedRows, verify_file
from border_cli.system.files import sync, write_bytes

CHUNK_NBYTES = 16 * 2**20  # copied and written at a time: the learner waits once for each
MAX_HEADER = 2**20  # bytes of an array before its rows; a field takes about 20
OVERWRITTEN = "the disk is too slow: transitions were overwritten before they were saved"


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingRows:
    """Transitions to write, and the chunks of those before them."""

    frozen: FrozenRows
    before: tuple[Chunk, ...]

    def saved(self, new: Sequence[Chunk]) -> SavedRows:
        """Their entry in a manifest once the `new` chunks are written."""
        return SavedRows(first=self.frozen.oldest, end=self.frozen.end, chunks=(*self.before, *new))


def write_chunks(folder: Path, rows: FrozenRows, written: Callable[[int], None]) -> list[Chunk]:
    """Writes all these rows and makes them survive a crash; reports the bytes to `written`."""
    folder.mkdir(exist_ok=True)
    chunk_rows = max(1, CHUNK_NBYTES // rows.row_nbytes)
    chunks = []
    for first in range(rows.first, rows.end, chunk_rows):
        end = min(first + chunk_rows, rows.end)
        content = _content(rows, end - first)
        name = f"rows-{first:010d}-{end:010d}-{token_hex(4)}.npy"
        write_bytes(folder / name, content)
        written(len(content))
        digest = hashlib.sha256(content).hexdigest()
        chunks.append(Chunk(first=first, end=end, name=name, sha256=digest))
    if chunks:
        sync(folder)
    return chunks


def _content(rows: FrozenRows, count: int) -> bytes:
    chunk = rows.take(count)
    if chunk is None:
        raise OSError(OVERWRITTEN)
    content = io.BytesIO()
    for each in chunk:
        np.lib.format.write_array(content, each, version=(3, 0), allow_pickle=False)
    return content.getvalue()


def load_chunks(folder: Path, rows: SavedRows, buffer: ReplayBuffer) -> None:
    """Puts all rows back and verifies every chunk before.

    Raises `CheckpointError` naming the file and what is wrong; the buffer is an empty one then.
    """
    for chunk in rows.chunks:
        path = folder / chunk.name
        verify_file(path, chunk.sha256)
        try:
            arrays = _read(path)
        except (OSError, ValueError) as error:
            raise CheckpointError(f"{path} cannot be read: {error}") from error
        buffer.load_rows(chunk.first, arrays)


def _read(path: Path) -> list[NDArray[Any]]:
    arrays: list[NDArray[Any]] = []
    with path.open("rb") as file:
        while file.peek(1):
            arrays.append(
                np.lib.format.read_array(file, allow_pickle=False, max_header_size=MAX_HEADER)
            )
    return arrays
