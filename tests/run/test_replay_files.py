"""Chunk files of the replay buffer: writing, verification on load, refusal of pickles."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest

from border_cli.errors import CheckpointError
from border_cli.replay_buffer.config import UniformConfig
from border_cli.replay_buffer.uniform import UniformReplayBuffer
from border_cli.run.checkpoint_files import load_chunks, write_chunks
from border_cli.run.manifest import Chunk, SavedRows
from tests.support.malicious_files import Malicious
from tests.support.small_run import rows, spec_of


def buffer_of(capacity: int = 100, *, images: bool = False) -> UniformReplayBuffer:
    config = UniformConfig(capacity=capacity)
    spec = spec_of(images=images)
    return UniformReplayBuffer(config, spec=spec, rng=np.random.default_rng(0))


def filled(count: int, capacity: int = 100, *, images: bool = False) -> UniformReplayBuffer:
    buffer = buffer_of(capacity, images=images)
    buffer.push(rows(spec_of(images=images), 0, count))
    return buffer


def write_rows(
    folder: Path, buffer: UniformReplayBuffer, first: int = 0, chunk_nbytes: int = 2**20
) -> SavedRows:
    frozen = buffer.ring.freeze(first, chunk_nbytes=chunk_nbytes)
    chunk_sizes: list[int] = []
    chunks = write_chunks(folder, frozen, chunk_sizes.append)
    assert sum(chunk_sizes) == sum((folder / chunk.name).stat().st_size for chunk in chunks)
    return SavedRows(first=frozen.first, end=frozen.end, chunks=tuple(chunks))


def load_rows(
    folder: Path, saved: SavedRows, buffer: UniformReplayBuffer, *, images: bool = False
) -> UniformReplayBuffer:
    target = buffer_of(buffer.capacity, images=images)
    target.load_state_dict(buffer.state_dict())
    load_chunks(folder, saved.chunks, target)
    return target


@pytest.mark.parametrize("images", [False, True])
@pytest.mark.parametrize("count", [1, 100, 130])
@pytest.mark.parametrize("chunk_nbytes", [2**20, 400, 1])
def test_rows_come_back_whatever_the_chunks(
    tmp_path: Path, images: bool, count: int, chunk_nbytes: int
) -> None:
    buffer = filled(count, images=images)
    saved = write_rows(tmp_path, buffer, chunk_nbytes=chunk_nbytes)
    target = load_rows(tmp_path, saved, buffer, images=images)
    index = np.arange(len(buffer))
    assert target.rows(index).obs.tobytes() == buffer.rows(index).obs.tobytes()
    assert target.rows(index).reward.tobytes() == buffer.rows(index).reward.tobytes()


def test_rows_of_a_chunk_that_were_overwritten_since_are_left_out(tmp_path: Path) -> None:
    buffer = filled(80)
    first = write_rows(tmp_path, buffer)
    buffer.push(rows(spec_of(), 80, 150))
    second = write_rows(tmp_path, buffer, first=80)
    saved = SavedRows(first=50, end=150, chunks=(*first.chunks, *second.chunks))
    target = load_rows(tmp_path, saved, buffer)
    assert sorted(target.rows(np.arange(100)).reward) == list(range(50, 150))


def test_rows_overwritten_before_they_are_on_the_disk_are_a_failure(tmp_path: Path) -> None:
    frozen = filled(100).ring.freeze(0, chunk_nbytes=1000)
    with pytest.raises(OSError, match="the disk is too slow: transitions were overwritten"):
        write_chunks(tmp_path, frozen, lambda _: frozen.release())


@pytest.mark.parametrize("at", [None, 0, 300, -1])
def test_a_damaged_chunk_is_named_and_leaves_the_buffer_empty(
    tmp_path: Path, at: int | None
) -> None:
    """The byte at this position is changed; None deletes the chunk."""
    buffer = filled(100, images=True)
    saved = write_rows(tmp_path, buffer)
    path = tmp_path / saved.chunks[0].name
    content = bytearray(path.read_bytes())
    path.unlink()
    if at is not None:
        content[at] ^= 1
        path.write_bytes(content)
    target = buffer_of(images=True)
    target.load_state_dict(buffer.state_dict())
    with pytest.raises(CheckpointError, match=rf"{path.name} is (missing|damaged)"):
        load_chunks(tmp_path, saved.chunks, target)
    assert len(target) == 0


def test_a_chunk_with_a_pickle_inside_is_refused_and_nothing_runs(tmp_path: Path) -> None:
    mark, path = tmp_path / "ran", tmp_path / "x.npy"
    np.save(path, np.array([Malicious(mark)] * 3, object))
    digest = hashlib.sha256(path.read_bytes()).hexdigest()  # as an attacker would compute it
    chunk = Chunk(first=0, end=3, name=path.name, sha256=digest)
    with pytest.raises(CheckpointError, match=r"x\.npy cannot be read: .*allow_pickle"):
        load_chunks(tmp_path, [chunk], buffer_of())
    assert not mark.exists()
