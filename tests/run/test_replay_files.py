"""Chunks of rows: written once, verified while they load, and nothing but plain numbers."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from malicious import Malicious
from saves import rows, spec_of

from border_cli.core.spaces import BoxSpace, DictSpace, DiscreteSpace, EnvSpec
from border_cli.errors import CheckpointError
from border_cli.replay_buffer.config import UniformConfig
from border_cli.replay_buffer.uniform import UniformReplayBuffer
from border_cli.run.manifest import Chunk, SavedRows
from border_cli.run.replay_files import (
    CHUNK_NBYTES,
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
    frozen.row_nbytes = row_nbytes  # as if rows were so large
    told: list[int] = []
    chunks = write_chunks(folder, frozen, told.append)
    assert sum(told) == sum((folder / each.name).stat().st_size for each in chunks)
    return SavedRows(first=frozen.first, end=frozen.end, chunks=tuple(chunks))


def loaded(
    folder: Path, saved: SavedRows, buffer: UniformReplayBuffer, *, images: bool = False
) -> UniformReplayBuffer:
    target = buffer_of(buffer.capacity, images=images)
    target.load_state_dict(buffer.state_dict())
    load_chunks(folder, saved, target)
    return target


@pytest.mark.parametrize("images", [False, True])
@pytest.mark.parametrize("count", [1, 100, 130])
@pytest.mark.parametrize("row_nbytes", [48, CHUNK_NBYTES // 7, CHUNK_NBYTES])
def test_rows_come_back_whatever_the_chunks(
    tmp_path: Path, images: bool, count: int, row_nbytes: int
) -> None:
    buffer = filled(count, images=images)
    saved = written(tmp_path, buffer, row_nbytes=row_nbytes)
    target = loaded(tmp_path, saved, buffer, images=images)
    index = np.arange(len(buffer))
    assert target.rows(index).obs.tobytes() == buffer.rows(index).obs.tobytes()
    assert target.rows(index).reward.tobytes() == buffer.rows(index).reward.tobytes()


def test_rows_of_a_chunk_that_were_overwritten_since_are_left_out(tmp_path: Path) -> None:
    buffer = filled(80)
    first = written(tmp_path, buffer)
    buffer.push(rows(spec_of(), 80, 150))
    second = written(tmp_path, buffer, first=80)
    saved = SavedRows(first=50, end=150, chunks=(*first.chunks, *second.chunks))
    target = loaded(tmp_path, saved, buffer)
    assert sorted(target.rows(np.arange(100)).reward) == list(range(50, 150))


def test_rows_that_went_before_the_disk_took_them_are_a_failure(tmp_path: Path) -> None:
    frozen = filled(100).freeze(0)
    frozen.row_nbytes = CHUNK_NBYTES // 30
    with pytest.raises(OSError, match="the disk is too slow: transitions were overwritten"):
        write_chunks(tmp_path, frozen, lambda _: frozen.release())


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


@pytest.mark.parametrize("how", ["gone", "truncated", "longer", "folder", "0", "300", "-1"])
def test_a_damaged_chunk_is_named_and_leaves_the_buffer_empty(tmp_path: Path, how: str) -> None:
    buffer = filled(100, images=True)
    saved = written(tmp_path, buffer)
    name = saved.chunks[0].name
    damaged(tmp_path / name, how)
    target = buffer_of(images=True)
    target.load_state_dict(buffer.state_dict())
    what = "missing" if how in ("gone", "folder") else "damaged: its checksum does not match"
    with pytest.raises(CheckpointError, match=rf"{name} is {what}"):
        load_chunks(tmp_path, saved, target)
    assert len(target) == 0


def test_a_chunk_with_a_pickle_inside_is_refused_and_nothing_runs(tmp_path: Path) -> None:
    mark, path = tmp_path / "ran", tmp_path / "x.npy"
    np.save(path, np.array([Malicious(mark)] * 3, object))
    digest = hashlib.sha256(path.read_bytes()).hexdigest()  # as an attacker would write it
    chunk = Chunk(first=0, end=3, name=path.name, sha256=digest)
    with pytest.raises(CheckpointError, match=r"x\.npy cannot be read: .*allow_pickle"):
        load_chunks(tmp_path, SavedRows(first=0, end=3, chunks=(chunk,)), buffer_of())
    assert not mark.exists()


def test_names_of_any_letters_come_back(tmp_path: Path) -> None:
    box = BoxSpace((2,), "float32", low=np.zeros(2), high=np.ones(2))
    spec = EnvSpec(
        id="letters",
        observation=DictSpace({"größe_λ": box, "a\\n": box}),
        action=DiscreteSpace(9),
        max_episode_steps=None,
    )

    def buffer() -> UniformReplayBuffer:
        config = UniformConfig(capacity=10)
        return UniformReplayBuffer(config, spec=spec, rng=np.random.default_rng(0))

    pushed = rows(spec_of(), 0, 5)
    obs = {"größe_λ": pushed.obs[:, :2], "a\\n": pushed.obs[:, 2:]}
    source, target = buffer(), buffer()
    source.push(replace(pushed, obs=obs, next_obs=obs))
    target.load_state_dict(source.state_dict())
    load_chunks(tmp_path, written(tmp_path, source), target)
    found = target.rows(np.arange(5)).obs
    assert found["größe_λ"].tolist() == obs["größe_λ"].tolist()
