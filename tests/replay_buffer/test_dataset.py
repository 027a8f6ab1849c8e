"""Replay buffers that contain rows of a data set and rows of actors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from border_cli.core.spaces import EnvSpec
from border_cli.core.types import Transitions
from border_cli.errors import CheckpointError, ConfigError, RunFailed
from border_cli.replay_buffer.config import DatasetConfig
from border_cli.replay_buffer.dataset import DatasetRows
from border_cli.replay_buffer.uniform import UniformReplayBuffer

MakeRows = Callable[..., Transitions]


@pytest.fixture
def build(spec: EnvSpec, make_rows: MakeRows) -> Callable[..., UniformReplayBuffer]:
    """Builds a buffer with rows 0 … 4 of a data set, in two parts, and space for 3 more."""

    def _build(
        *, seed: int = 0, capacity: int = 3, grows: bool = True, steps: int = 5, **other: Any
    ) -> UniformReplayBuffer:
        parts = [make_rows(spec, 0, 2), make_rows(spec, 2, 5)]
        settings: dict[str, Any] = {"rows": parts, "checksum": "abc", "share": None} | other
        return UniformReplayBuffer(
            DatasetConfig(capacity=capacity),
            spec=spec,
            rng=np.random.default_rng(seed),
            dataset=DatasetRows(id="my/numbers-v0", steps=steps, grows=grows, **settings),
        )

    return _build


Build = Callable[..., UniformReplayBuffer]


def numbers(buffer: UniformReplayBuffer) -> list[int]:
    """Returns the numbers of the stored rows, in the order of their slots."""
    rows = buffer.rows(np.arange(len(buffer)))
    assert isinstance(rows.obs, np.ndarray)
    assert isinstance(rows.next_obs, np.ndarray)
    assert (rows.next_obs == rows.obs + 1).all()
    assert (rows.reward == 2 * rows.action).all()
    return [int(number) for number in rows.action]


def test_the_data_set_stays_and_the_oldest_rows_of_actors_make_room(
    build: Build, spec: EnvSpec, make_rows: MakeRows
) -> None:
    buffer = build()
    assert (len(buffer), buffer.capacity, buffer.ring.pushed) == (5, 8, 0)
    buffer.push(make_rows(spec, 100, 102))
    assert numbers(buffer) == [0, 1, 2, 3, 4, 100, 101]
    buffer.push(make_rows(spec, 102, 105))
    assert numbers(buffer) == [0, 1, 2, 3, 4, 103, 104, 102]
    assert (len(buffer), buffer.ring.pushed, buffer.freeze(0).oldest) == (8, 5, 2)
    buffer.push(make_rows(spec, 200, 210))
    assert sorted(numbers(buffer)) == [0, 1, 2, 3, 4, 207, 208, 209]


def test_every_row_is_equally_likely(build: Build, spec: EnvSpec, make_rows: MakeRows) -> None:
    buffer = build()
    buffer.push(make_rows(spec, 5, 7))
    drawn = np.concatenate([buffer.sample(700).action.copy() for _ in range(100)])
    counts = np.bincount(drawn, minlength=7)
    # 70,000 draws: 10,000 of every row, with a standard deviation of 93
    assert (np.abs(counts - 10_000) < 5 * 93).all()


def test_a_share_of_each_batch_is_of_the_data_set_and_the_rest_of_actors(
    build: Build, spec: EnvSpec, make_rows: MakeRows
) -> None:
    buffer = build(share=0.3, capacity=2)
    with pytest.raises(RunFailed, match="the replay buffer is empty"):
        buffer.sample(9)
    buffer.push(make_rows(spec, 5, 7))
    drawn = []
    for _ in range(2_000):
        batch = buffer.sample(9)  # 0.3 * 9 = 2.7, rounded to 3
        np.testing.assert_array_equal(batch.index, batch.action)
        np.testing.assert_array_equal(batch.index < 5, [True] * 3 + [False] * 6)
        drawn.append(batch.action.copy())
    counts = np.bincount(np.concatenate(drawn), minlength=7)
    # 6,000 draws of 5 rows (standard deviation 31) and 12,000 draws of 2 rows (55)
    assert (np.abs(counts[:5] - 1_200) < 5 * 31).all()
    assert (np.abs(counts[5:] - 6_000) < 5 * 55).all()


def test_all_columns_of_a_sample_are_of_its_rows(build: Build) -> None:
    batch = build().sample(64)
    number = batch.action
    assert isinstance(batch.obs, np.ndarray)
    np.testing.assert_array_equal(batch.obs[:, 3], number)
    np.testing.assert_array_equal(batch.reward, 2 * number)
    np.testing.assert_array_equal(batch.discount, (number / 1000).astype(np.float32))
    np.testing.assert_array_equal(batch.index, number)
    assert (batch.weight == 1).all()


def test_without_actors_it_is_full_of_the_data_set(build: Build) -> None:
    buffer = build(capacity=1_000_000, grows=False)
    assert (len(buffer), buffer.capacity) == (5, 5)
    assert buffer.nbytes == 6 * 48  # one row more than the data set has


@pytest.mark.parametrize("share", [None, 0.5])
def test_a_state_has_no_row_of_the_data_set_and_goes_on_to_the_bit(
    build: Build, spec: EnvSpec, make_rows: MakeRows, share: float | None
) -> None:
    buffer = build(share=share)
    buffer.push(make_rows(spec, 100, 105))
    buffer.sample(4)
    state = buffer.state_dict()
    frozen = buffer.freeze(0)
    assert (frozen.first, frozen.end) == (2, 5)
    blocks = frozen.take()
    assert blocks is not None
    expected = [buffer.sample(4).action.tolist() for _ in range(40)]

    restored = build(seed=9, share=share)
    restored.load_state_dict(state)
    assert numbers(restored) == [0, 1, 2, 3, 4]
    restored.load_rows(2, blocks)
    assert numbers(restored) == numbers(buffer)
    assert [restored.sample(4).action.tolist() for _ in range(40)] == expected


def test_an_empty_part_of_actors_has_nothing_to_save(build: Build) -> None:
    for buffer in (build(), build(grows=False)):
        frozen = buffer.freeze(0)
        assert (frozen.first, frozen.end, buffer.freeze(0).oldest) == (0, 0, 0)
        assert frozen.take() is None


def test_another_data_set_of_the_same_name_is_refused(
    build: Build, spec: EnvSpec, make_rows: MakeRows
) -> None:
    state = build().state_dict()
    build().load_state_dict(state)
    with pytest.raises(CheckpointError, match=r"is not the one .* checksum xyz, expected abc"):
        build(checksum="xyz").load_state_dict(state)
    with pytest.raises(CheckpointError, match=r"is not the one .* rows 2, expected 5"):
        build(rows=[make_rows(spec, 0, 2)]).load_state_dict(state)


def test_more_rows_than_steps_and_none_at_all_are_refused(build: Build) -> None:
    with pytest.raises(
        ConfigError, match="numbers-v0 does not match its metadata: there is space for 4"
    ):
        build(steps=4)
    with pytest.raises(ConfigError, match="numbers-v0 contains no transitions"):
        build(rows=[])


def test_fewer_rows_than_steps_leave_no_hole(
    build: Build, spec: EnvSpec, make_rows: MakeRows
) -> None:
    buffer = build(steps=50)
    buffer.push(make_rows(spec, 100, 104))
    assert sorted(numbers(buffer)) == [0, 1, 2, 3, 4, 101, 102, 103]
