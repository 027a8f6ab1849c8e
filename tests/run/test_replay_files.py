"""Chunks of rows: written once, verified while they load, and nothing but plain numbers."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from malicious import Malicious
from saves import rows, spec_of

from border_cli.core.errors import CheckpointError
from border_cli.core.interfaces import FrozenRows
from border_cli.replay_buffer.config import UniformConfig
from border_cli.replay_buffer.uniform import UniformReplayBuffer
from border_cli.run.manifest import Chunk, SavedRows
from border_cli.run.replay_files import (
    CHUNK_NBYTES,
    PIECE_NBYTES,
    NpyReader,
    NpyWriter,
    load_chunks,
    write_chunks,
)


def buffer_of(capacity: int = 100, *, images: bool = False) -> UniformReplayBuffer:
    config = UniformConfig(capacity=capacity)
    spec = spec_of(images=images)
    return UniformReplayBuffer(config, spec=spec, rng=np.random.default_rng(0))


def filled(count: int, capacity: int = 100, *, images: bool = False) -> UniformReplayBuffer:
    buffer = buffer_of(capacity, images=images)
    buffer.push(rows(spec_of(images=images), 0, count))
    return buffer


def written(
    folder: Path, buffer: UniformReplayBuffer, first: int = 0, row_nbytes: int = 48
) -> SavedRows:
    frozen = buffer.freeze(first)
    told: list[int] = []
    chunks = write_chunks(folder, frozen, row_nbytes=row_nbytes, written=told.append)
    assert sum(told) == (frozen.end - frozen.first) * (buffer.nbytes // buffer.capacity)
    return SavedRows(
        first=frozen.first, end=frozen.end, capacity=buffer.capacity, chunks=tuple(chunks)
    )


def loaded(folder: Path, saved: SavedRows, buffer: UniformReplayBuffer) -> UniformReplayBuffer:
    target = buffer_of(buffer.capacity, images=len(saved.chunks[0].files) > 1)
    target.load_state_dict(buffer.state_dict())
    load_chunks(folder, saved, target)
    return target


@pytest.mark.parametrize("images", [False, True])
@pytest.mark.parametrize("count", [1, 100, 130])
@pytest.mark.parametrize("row_nbytes", [48, PIECE_NBYTES // 7, CHUNK_NBYTES // 40])
def test_rows_come_back_whatever_the_pieces(
    tmp_path: Path, images: bool, count: int, row_nbytes: int
) -> None:
    buffer = filled(count, images=images)
    saved = written(tmp_path, buffer, row_nbytes=row_nbytes)
    target = loaded(tmp_path, saved, buffer)
    index = np.arange(len(buffer))
    assert target.rows(index).obs.tobytes() == buffer.rows(index).obs.tobytes()
    assert target.rows(index).reward.tobytes() == buffer.rows(index).reward.tobytes()


def test_many_rows_are_cut_into_chunks_and_those_into_pieces(tmp_path: Path) -> None:
    buffer = filled(100)
    saved = written(tmp_path, buffer, row_nbytes=CHUNK_NBYTES // 40)
    assert [(each.first, each.end) for each in saved.chunks] == [(0, 40), (40, 80), (80, 100)]
    names = sorted(each.name for each in tmp_path.iterdir())
    assert names == sorted(name for each in saved.chunks for name in each.files)


def test_the_checksum_is_that_of_the_file(tmp_path: Path) -> None:
    saved = written(tmp_path, filled(30, images=True))
    for name, expected in saved.chunks[0].files.items():
        assert hashlib.sha256((tmp_path / name).read_bytes()).hexdigest() == expected


def test_rows_of_a_chunk_that_were_overwritten_since_are_left_out(tmp_path: Path) -> None:
    buffer = filled(80)
    first = written(tmp_path, buffer)
    buffer.push(rows(spec_of(), 80, 150))
    second = written(tmp_path, buffer, first=80)
    saved = SavedRows(first=50, end=150, capacity=100, chunks=(*first.chunks, *second.chunks))
    target = loaded(tmp_path, saved, buffer)
    assert sorted(target.rows(np.arange(100)).reward) == list(range(50, 150))


def test_no_rows_make_no_file(tmp_path: Path) -> None:
    saved = written(tmp_path / "replay", filled(10), first=10)
    assert saved.chunks == ()
    assert list((tmp_path / "replay").iterdir()) == []


class Released:
    """Rows that were overwritten before the disk took them all."""

    def __init__(self, rows: FrozenRows) -> None:
        self.first, self.end = rows.first, rows.end
        self._rows = rows

    def take(self, max_rows: int) -> list[np.ndarray] | None:
        blocks = self._rows.take(min(max_rows, 30))
        self._rows.release()
        return blocks

    def release(self) -> None:
        self._rows.release()


def test_rows_that_went_before_the_disk_took_them_are_a_failure_that_leaves_no_file(
    tmp_path: Path,
) -> None:
    frozen = Released(filled(100).freeze(0))
    with pytest.raises(OSError, match="the disk is too slow: transitions were overwritten"):
        write_chunks(tmp_path, frozen, row_nbytes=PIECE_NBYTES // 7, written=lambda _: None)
    assert list(tmp_path.iterdir()) == []


def damaged(path: Path, how: str) -> None:
    content = path.read_bytes()
    if how == "gone":
        path.unlink()
    elif how == "empty":
        path.write_bytes(b"")
    elif how == "truncated":
        path.write_bytes(content[:-1])
    elif how == "longer":
        path.write_bytes(content + b"\0")
    elif how == "folder":
        path.unlink()
        path.mkdir()
    else:
        at = int(how)
        path.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])


@pytest.mark.parametrize(
    "how",
    ["gone", "empty", "truncated", "longer", "folder", "0", "6", "8", "40", "70", "300", "-1"],
)
@pytest.mark.parametrize("block", [0, 2])
def test_a_damaged_chunk_is_named_and_leaves_the_buffer_empty(
    tmp_path: Path, how: str, block: int
) -> None:
    buffer = filled(100, images=True)
    saved = written(tmp_path, buffer)
    name = list(saved.chunks[0].files)[block]
    damaged(tmp_path / name, how)
    target = buffer_of(images=True)
    target.load_state_dict(buffer.state_dict())
    what = "missing" if how in ("gone", "folder") else "damaged: its checksum does not match"
    with pytest.raises(CheckpointError, match=rf"{name} is {what}"):
        load_chunks(tmp_path, saved, target)
    assert len(target) == 0


def test_a_flipped_bit_in_any_byte_is_noticed(tmp_path: Path) -> None:
    buffer = filled(3, capacity=3)
    saved = written(tmp_path, buffer)
    (name,) = saved.chunks[0].files
    content = (tmp_path / name).read_bytes()
    target = buffer_of(3)
    for byte in range(len(content)):
        flipped = bytearray(content)
        flipped[byte] ^= 1 << byte % 8
        (tmp_path / name).write_bytes(bytes(flipped))
        target.load_state_dict(buffer.state_dict())
        with pytest.raises(CheckpointError, match=r"is damaged: its checksum does not match"):
            load_chunks(tmp_path, saved, target)
        assert len(target) == 0


def signed(folder: Path, name: str) -> SavedRows:
    """A chunk whose checksum fits what the file holds, as an attacker would make it."""
    sums = {name: hashlib.sha256((folder / name).read_bytes()).hexdigest()}
    chunk = Chunk(first=0, end=3, files=sums)
    return SavedRows(first=0, end=3, capacity=100, chunks=(chunk,))


def header(text: str) -> bytes:
    return b"\x93NUMPY\x02\x00" + len(text.encode()).to_bytes(4, "little") + text.encode()


def test_a_chunk_with_a_pickle_inside_is_refused_and_nothing_runs(tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    array = np.array([Malicious(mark)] * 3, object)
    np.save(tmp_path / "old.npy", array)
    text = "{'descr': '|O', 'fortran_order': False, 'shape': (3,)}"
    (tmp_path / "new.npy").write_bytes(header(text) + (tmp_path / "old.npy").read_bytes()[128:])
    for name, why in (("old.npy", "not a .npy file of version 2"), ("new.npy", "Python objects")):
        target = buffer_of()
        target.load_state_dict(filled(3).state_dict())
        with pytest.raises(CheckpointError, match=rf"{name} cannot be read: it.*{why}"):
            load_chunks(tmp_path, signed(tmp_path, name), target)
    assert not mark.exists()


@pytest.mark.parametrize(
    "text",
    [
        "[]",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 3)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (-3,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999,)}",
        "{'descr': '|V0', 'fortran_order': False, 'shape': (3,)}",
        "(" * 500,
    ],
)
def test_a_signed_header_that_makes_no_sense_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "x.npy").write_bytes(header(text))
    target = buffer_of()
    target.load_state_dict(filled(3).state_dict())
    with pytest.raises(CheckpointError, match=r"x\.npy cannot be read: "):
        load_chunks(tmp_path, signed(tmp_path, "x.npy"), target)


def test_signed_rows_of_another_form_are_refused(tmp_path: Path) -> None:
    writer = NpyWriter(tmp_path / "x.npy", np.dtype("<f4"), 3)
    writer.write(np.zeros(3, np.float32))
    writer.finish()
    target = buffer_of()
    target.load_state_dict(filled(3).state_dict())
    with pytest.raises(CheckpointError, match=r"x\.npy cannot be read: the saved rows have types"):
        load_chunks(tmp_path, signed(tmp_path, "x.npy"), target)


def test_a_chunk_with_fewer_rows_than_its_manifest_says_is_refused(tmp_path: Path) -> None:
    buffer = filled(2)
    (chunk,) = written(tmp_path, buffer).chunks
    target = buffer_of()
    target.load_state_dict(filled(3).state_dict())
    with pytest.raises(CheckpointError, match="it does not contain rows 0 to 3"):
        load_chunks(tmp_path, signed(tmp_path, *chunk.files), target)


def test_another_capacity_is_named(tmp_path: Path) -> None:
    saved = written(tmp_path, filled(3))
    with pytest.raises(CheckpointError, match="has capacity 100, expected 50"):
        load_chunks(tmp_path, saved, buffer_of(50))


@pytest.mark.parametrize(
    "dtype",
    [
        np.dtype("<f4"),
        np.dtype([("observation/größe_λ\\n", "u1", (3, 2)), ("b", "<i8")], align=True),
    ],
)
def test_what_is_written_comes_back_and_numpy_reads_it(
    tmp_path: Path, dtype: np.dtype[Any]
) -> None:
    block = np.frombuffer(os.urandom(5 * dtype.itemsize), np.uint8).view(dtype)
    writer = NpyWriter(tmp_path / "x.npy", dtype, 5)
    writer.write(block[:2])
    writer.write(block[2:])
    expected = writer.finish()
    read = np.load(tmp_path / "x.npy", allow_pickle=False)
    assert (read.dtype.itemsize, read.tobytes()) == (dtype.itemsize, block.tobytes())
    reader = NpyReader(tmp_path / "x.npy")
    assert (reader.dtype, reader.rows) == (dtype, 5)
    assert reader.read(4).tobytes() == block[:4].tobytes()
    assert reader.finish() == expected
    reader.close()
