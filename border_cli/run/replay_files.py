"""The rows of a replay buffer on disk: chunks in `checkpoints/replay/` that checkpoints share.

Every row is written once. A chunk is a range of rows, one file per block of the buffer's storage,
and never changes; no file takes the name of another.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from itertools import takewhile
from pathlib import Path
from secrets import token_hex

from border_cli.core.errors import CheckpointError
from border_cli.core.files import own_folder
from border_cli.core.interfaces import FrozenRows, ReplayBuffer
from border_cli.run.files import checksum, files_in, sync
from border_cli.run.manifest import Chunk, SavedRows
from border_cli.run.npy import NpyReader, NpyWriter

FOLDER = "replay"
PIECE_NBYTES = 16 * 2**20  # copied, summed and written at once: each piece costs the learner a wait
CHUNK_NBYTES = 256 * 2**20  # a file is kept until the last of its rows is forgotten


def write_chunks(
    folder: Path, rows: FrozenRows, *, row_nbytes: int, written: Callable[[int], None]
) -> list[Chunk]:
    """Writes all these rows and makes them survive a crash; tells `written` of the bytes.

    Leaves nothing behind where it raises `OSError`.
    """
    piece_rows = max(1, PIECE_NBYTES // row_nbytes)
    chunk_rows = max(1, CHUNK_NBYTES // row_nbytes)
    own_folder(folder)
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


def up_to_missing(folder: Path, chunks: Sequence[Chunk]) -> tuple[Chunk, ...]:
    """The chunks before the first of which a file is gone."""
    there = files_in(folder) if chunks else set()
    return tuple(takewhile(lambda each: each.files.keys() <= there, chunks))


def remove_chunks(folder: Path, chunks: Sequence[Chunk]) -> None:
    """Removes chunks that no manifest names."""
    for name in [name for chunk in chunks for name in chunk.files]:
        (folder / name).unlink(missing_ok=True)


def _pieces(first: int, end: int, rows: int) -> list[int]:
    """How many rows are handled at a time."""
    return [min(rows, end - at) for at in range(first, end, rows)]


def _write_chunk(
    folder: Path,
    rows: FrozenRows,
    first: int,
    end: int,
    pieces: list[int],
    written: Callable[[int], None],
) -> Chunk:
    stem = _new_stem(folder, first, end)
    files: list[NpyWriter] = []
    try:
        for count in pieces:
            blocks = rows.take(count)
            if blocks is None:
                raise OSError(
                    "the disk is too slow: transitions were overwritten before they were saved"
                )
            for i, block in enumerate(blocks):
                if i == len(files):
                    files.append(NpyWriter(folder / f"{stem}.{i}.npy", block.dtype, end - first))
                files[i].write(block)
            written(sum(block.nbytes for block in blocks))
        return Chunk(first=first, end=end, files={each.path.name: each.finish() for each in files})
    except BaseException:
        for each in files:
            each.discard()
        raise


def _new_stem(folder: Path, first: int, end: int) -> str:
    while True:
        stem = f"rows-{first:010d}-{end:010d}-{token_hex(4)}"
        if not any(folder.glob(f"{stem}.*")):
            return stem


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
            _verify(folder, chunk)  # a damaged file is the better reason
            names = ", ".join(chunk.files)
            raise CheckpointError(f"{folder / names} cannot be read: {error}") from error


def _load_chunk(folder: Path, chunk: Chunk, oldest: int, buffer: ReplayBuffer) -> None:
    with ExitStack() as closing:
        files: list[NpyReader] = []
        for name in chunk.files:
            files.append(NpyReader(folder / name))
            closing.callback(files[-1].close)
        if any(each.rows != chunk.end - chunk.first for each in files):
            raise ValueError(f"it does not contain rows {chunk.first} to {chunk.end}")
        at = chunk.first
        for count in _pieces(chunk.first, chunk.end, max(1, PIECE_NBYTES // _row_nbytes(files))):
            blocks = [each.read(count) for each in files]
            forgotten = min(max(0, oldest - at), count)  # these were overwritten before the save
            last = at + count >= chunk.end
            if last and [each.finish() for each in files] != list(chunk.files.values()):
                raise ValueError("its checksum does not match the manifest")
            if forgotten < count:
                buffer.load_rows(at + forgotten, [block[forgotten:] for block in blocks])
            at += count


def _row_nbytes(files: Sequence[NpyReader]) -> int:
    return sum(each.dtype.itemsize for each in files)


def _verify(folder: Path, chunk: Chunk) -> None:
    for name, expected in chunk.files.items():
        verify_file(folder / name, expected)


def verify_file(path: Path, expected: str) -> None:
    """Raises `CheckpointError` where the file is not as it was written."""
    if not path.is_file():
        raise CheckpointError(f"{path} is missing")
    try:
        found = checksum(path)
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error}") from error
    if found != expected:
        raise CheckpointError(f"{path} is damaged: its checksum does not match the manifest")
