"""Transitions on the disk: chunks in `checkpoints/replay/` that checkpoints share.

Every transition is written once. A chunk is a range of them, one `.npy` file per block of the
buffer's storage, and never changes. What transitions share, as the frames of stacked images, is in
a file beside them, so that every chunk can be read alone. Files are written and read piece by piece
with a checksum: numpy's own reader takes a file whole, or maps it, and then a damaged disk kills
the process.
"""

from __future__ import annotations

import copy
import hashlib
import io
import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from border_cli.core.errors import CheckpointError
from border_cli.core.files import sync
from border_cli.core.interfaces import FrozenRows, FrozenSharingRows, ReplayBuffer, SharedEntries
from border_cli.run.manifest import OTHER_SUM, SHARED, Chunk, SavedRows, verify_file

PIECE_NBYTES = 16 * 2**20  # copied and written at a time: the learner waits once for each piece
CHUNK_NBYTES = 256 * 2**20  # a file is kept until the last of its rows is overwritten
MAX_HEADER = 2**20  # bytes of a .npy file before its rows; a field takes about 20
OVERWRITTEN = "the disk is too slow: transitions were overwritten before they were saved"
REST_NBYTES = 2**20  # read at a time where only the checksum counts


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingRows:
    """Transitions to write, and the chunks of those before them."""

    frozen: FrozenRows
    oldest: int  # number of the oldest row that the replay buffer holds
    capacity: int
    row_nbytes: int
    before: tuple[Chunk, ...]

    def saved(self, new: Sequence[Chunk]) -> SavedRows:
        """What a manifest says of them once the `new` chunks are written."""
        chunks = tuple(each for each in (*self.before, *new) if each.end > self.oldest)
        return SavedRows(
            first=self.oldest, end=self.frozen.end, capacity=self.capacity, chunks=chunks
        )


def write_chunks(
    folder: Path, rows: FrozenRows, *, row_nbytes: int, written: Callable[[int], None]
) -> list[Chunk]:
    """Writes all these rows and makes them survive a crash; reports the bytes to `written`.

    Leaves no file where it raises `OSError`.
    """
    piece_rows = max(1, PIECE_NBYTES // row_nbytes)
    chunk_rows = max(1, CHUNK_NBYTES // row_nbytes)
    folder.mkdir(exist_ok=True)
    chunks: list[Chunk] = []
    try:
        for first in range(rows.first, rows.end, chunk_rows):
            end = min(first + chunk_rows, rows.end)
            pieces = _pieces(first, end, piece_rows)
            chunks.append(_write_chunk(folder, rows, first, end, pieces, written))
        if chunks:
            sync(folder)
    except BaseException:
        remove_chunks(folder, chunks)
        raise
    return chunks


def _write_chunk(
    folder: Path,
    rows: FrozenRows,
    first: int,
    end: int,
    pieces: list[int],
    written: Callable[[int], None],
) -> Chunk:
    stem = f"rows-{first:010d}-{end:010d}-{token_hex(4)}"
    files: list[NpyWriter] = []
    beside: list[NpyWriter] = []
    try:
        shared = rows.shared(end - first) if isinstance(rows, FrozenSharingRows) else None
        if shared is not None:
            beside.append(NpyWriter(folder / f"{stem}{SHARED}", shared.dtype, len(shared)))
            _write_shared(beside[0], shared, written)
        for count in pieces:
            blocks = rows.take(count)
            if blocks is None:
                raise OSError(OVERWRITTEN)
            for i, block in enumerate(blocks):
                if i == len(files):
                    files.append(NpyWriter(folder / f"{stem}.{i}.npy", block.dtype, end - first))
                files[i].write(block)
            written(sum(block.nbytes for block in blocks))
        named = {each.path.name: each.finish() for each in (*files, *beside)}
        return Chunk(first=first, end=end, files=named)
    except BaseException:
        for each in (*files, *beside):
            each.discard()
        raise


def _write_shared(file: NpyWriter, shared: SharedEntries, written: Callable[[int], None]) -> None:
    for count in _pieces(0, len(shared), max(1, PIECE_NBYTES // shared.dtype.itemsize)):
        entries = shared.take(count)
        if entries is None:
            raise OSError(OVERWRITTEN)
        file.write(entries)
        written(entries.nbytes)


def _pieces(first: int, end: int, rows: int) -> list[int]:
    """How many rows are handled at a time."""
    return [min(rows, end - at) for at in range(first, end, rows)]


def remove_chunks(folder: Path, chunks: Sequence[Chunk]) -> None:
    """Removes chunks that no manifest names."""
    for name in [name for chunk in chunks for name in chunk.files]:
        (folder / name).unlink(missing_ok=True)


def load_chunks(folder: Path, rows: SavedRows, buffer: ReplayBuffer) -> None:
    """Puts all rows back and verifies every chunk meanwhile.

    Raises `CheckpointError` naming the file and what is wrong; the buffer is an empty one then.
    """
    if rows.capacity != buffer.capacity:
        raise CheckpointError(
            f"the saved replay buffer has capacity {rows.capacity}, expected {buffer.capacity}"
        )
    for chunk in rows.chunks:
        try:
            _load_chunk(folder, chunk, rows.first, buffer)
        except (OSError, ValueError, CheckpointError) as error:
            for name, expected in chunk.files.items():
                verify_file(folder / name, expected)  # a damaged file is the better explanation
            names = ", ".join(chunk.files)
            raise CheckpointError(f"{folder / names} cannot be read: {error}") from error


def _load_chunk(folder: Path, chunk: Chunk, oldest: int, buffer: ReplayBuffer) -> None:
    if chunk.shared is not None:
        _load_shared(folder / chunk.shared, chunk.files[chunk.shared], buffer)
    with ExitStack() as closing:
        files: list[NpyReader] = []
        for name in chunk.blocks:
            files.append(NpyReader(folder / name))
            closing.callback(files[-1].close)
        if any(each.rows != chunk.end - chunk.first for each in files):
            raise ValueError(f"it does not contain rows {chunk.first} to {chunk.end}")
        at, row_nbytes = chunk.first, sum(each.dtype.itemsize for each in files)
        for count in _pieces(chunk.first, chunk.end, max(1, PIECE_NBYTES // row_nbytes)):
            blocks = [each.read(count) for each in files]
            overwritten = min(max(0, oldest - at), count)  # before the save
            last = at + count >= chunk.end
            if last and [each.finish() for each in files] != [
                chunk.files[name] for name in chunk.blocks
            ]:
                raise ValueError(OTHER_SUM)
            if overwritten < count:
                buffer.load_rows(at + overwritten, [block[overwritten:] for block in blocks])
            at += count


def _load_shared(path: Path, expected: str, buffer: ReplayBuffer) -> None:
    file = NpyReader(path)
    try:
        counts = _pieces(0, file.rows, max(1, PIECE_NBYTES // file.dtype.itemsize))
        for i, count in enumerate(counts):
            entries = file.read(count)
            if i + 1 == len(counts) and file.finish() != expected:
                raise ValueError(OTHER_SUM)
            buffer.load_shared(entries)
    finally:
        file.close()


class NpyWriter:
    """Writes rows under a temporary name; `finish` gives the file its own."""

    def __init__(self, path: Path, dtype: np.dtype[Any], rows: int) -> None:
        self.path = path
        self._sum = hashlib.sha256()
        self._temporary = path.with_name(f".{path.name}.tmp")
        self._file = self._temporary.open("xb")
        try:
            self._write(_header(dtype, rows))
        except BaseException:
            self.discard()
            raise

    def write(self, rows: NDArray[Any]) -> None:
        """Appends these rows; neither the sum nor the disk holds the interpreter lock."""
        self._write(rows.view(np.uint8).data)

    def _write(self, content: bytes | memoryview) -> None:
        self._sum.update(content)
        self._file.write(content)

    def finish(self) -> str:
        """Makes the file survive a crash and returns its SHA-256."""
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        self._temporary.rename(self.path)
        return self._sum.hexdigest()

    def discard(self) -> None:
        """Removes what was written, finished or not."""
        with suppress(OSError):  # a full disk: flushing fails again
            self._file.close()
        for path in (self._temporary, self.path):
            with suppress(OSError):
                path.unlink(missing_ok=True)


class NpyReader:
    """Reads rows one after another; raises `ValueError` or `OSError` where they are missing."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("rb")
        self._sum = hashlib.sha256()
        try:
            self.dtype, self.rows = self._read_header()
        except BaseException:
            self.close()
            raise

    def _read_header(self) -> tuple[np.dtype[Any], int]:
        dtype, rows = _read_header(self._file)
        start = self._file.tell()
        if os.fstat(self._file.fileno()).st_size != start + rows * dtype.itemsize:
            raise ValueError("its size does not match its header")
        self._file.seek(0)
        self._sum.update(self._file.read(start))
        return dtype, rows

    def read(self, rows: int) -> NDArray[Any]:
        """The next rows. [rows]"""
        block = np.empty(rows, self.dtype)  # [rows]
        view = block.view(np.uint8).data
        if self._file.readinto(view) != len(view):
            raise ValueError("it is truncated")
        self._sum.update(view)
        return block

    def finish(self) -> str:
        """The SHA-256 of the whole file, whatever of it was read so far."""
        while rest := self._file.read(REST_NBYTES):
            self._sum.update(rest)
        return self._sum.hexdigest()

    def close(self) -> None:
        self._file.close()


def _header(dtype: np.dtype[Any], rows: int) -> bytes:
    """The start of a .npy file of version 2, whose text is Latin-1: other letters are escaped."""
    content = {
        "descr": np.lib.format.dtype_to_descr(
            _renamed(dtype, lambda name: name.encode("unicode_escape").decode())
        ),
        "fortran_order": False,
        "shape": (rows,),
    }
    file = io.BytesIO()
    np.lib.format.write_array_header_2_0(file, content)
    return file.getvalue()


def _read_header(file: BinaryIO) -> tuple[np.dtype[Any], int]:
    """Type and number of the rows that follow; raises `ValueError` where they are not plain."""
    try:
        version = np.lib.format.read_magic(file)
        if version != (2, 0):
            raise ValueError("not a .npy file of version 2")
        shape, _, dtype = np.lib.format.read_array_header_2_0(file, max_header_size=MAX_HEADER)
        (rows,) = shape
        dtype = _renamed(dtype, lambda name: name.encode().decode("unicode_escape"))
    except Exception as error:  # a damaged header may raise anything
        raise ValueError(f"its header is damaged: {error}") from error
    if dtype.hasobject:
        raise ValueError("it contains Python objects, which could run code")
    if dtype.itemsize == 0 or rows < 0:
        raise ValueError(f"its header says {rows} rows of {dtype.itemsize} bytes")
    return dtype, rows


def _renamed(dtype: np.dtype[Any], rename: Callable[[str], str]) -> np.dtype[Any]:
    """The type with other names of its columns."""
    if dtype.names is None:
        return dtype
    renamed = copy.copy(dtype)
    renamed.names = tuple(map(rename, dtype.names))
    return renamed
