"""Rollout buffers: collecting, epochs of shuffled minibatches, dropping, and resumes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from border_cli.core.rows import EPISODE_COLUMN
from border_cli.core.spaces import BoxSpace, DiscreteSpace, EnvSpec
from border_cli.core.types import EPISODE, Transitions
from border_cli.errors import RunFailed
from border_cli.replay_buffer.config import RolloutConfig
from border_cli.replay_buffer.rollout import RolloutBuffer

SPEC = EnvSpec(
    id="fake",
    observation=BoxSpace((1,), "float32", np.full(1, -np.inf), np.full(1, np.inf)),
    action=DiscreteSpace(2),
    max_episode_steps=None,
)


def buffer_of(n_steps: int = 10, n_epochs: int = 3, seed: int = 0) -> RolloutBuffer:
    return RolloutBuffer(
        RolloutConfig(n_steps=n_steps, n_epochs=n_epochs),
        spec=SPEC,
        rng=np.random.default_rng(seed),
        extras=[EPISODE_COLUMN],
        num_envs=2,
    )


def rows_of(first: int, last: int) -> Transitions:
    numbers = np.arange(first, last)
    column = numbers.astype(np.float32)
    return Transitions(
        obs=column[:, None],
        action=numbers % 2,
        reward=column,
        discount=column,
        next_obs=column[:, None] + 1,
        extras={EPISODE: numbers},
    )


def collect(buffer: RolloutBuffer, first: int, last: int) -> None:
    for start in range(first, last, 3):
        buffer.push(rows_of(start, min(start + 3, last)))
    buffer.prepare({"advantage": buffer.rollout().reward * 2})


def epochs(buffer: RolloutBuffer, batch_size: int) -> list[list[float]]:
    """Samples until all epochs are used up; returns the rewards of every minibatch."""
    batches = []
    while not buffer.used_up:
        batch = buffer.sample(batch_size)
        np.testing.assert_array_equal(batch.extras["advantage"], 2 * batch.reward)
        np.testing.assert_array_equal(batch.obs, batch.reward[:, None])
        batches.append(batch.reward.tolist())
    return batches


@pytest.mark.parametrize(
    ("rows", "batch_size", "sizes"),
    [
        (20, 8, [8, 8, 4]),
        (20, 10, [10, 10]),
        (21, 10, [10, 11]),  # a last minibatch of a single row is merged with the previous one
        (19, 6, [6, 6, 7]),
        (20, 20, [20]),
        (20, 1, [1] * 18 + [2]),
    ],
)
def test_each_epoch_has_every_row_once(rows: int, batch_size: int, sizes: list[int]) -> None:
    buffer = buffer_of()
    collect(buffer, 0, rows)
    batches = epochs(buffer, batch_size)
    assert [len(batch) for batch in batches] == sizes * 3
    orders = []
    for epoch in range(3):
        part = batches[len(sizes) * epoch : len(sizes) * (epoch + 1)]
        orders.append([reward for batch in part for reward in batch])
        assert sorted(orders[-1]) == list(range(rows))
    assert orders[0] != orders[1] != orders[2]


def test_the_next_rollout_has_only_its_own_rows() -> None:
    buffer = buffer_of()
    for first in range(0, 200, 20):
        collect(buffer, first, first + 20)
        assert buffer.rollout().reward.tolist() == list(range(first, first + 20))
        epochs(buffer, 7)
        buffer.drop()
        assert len(buffer) == 0
        assert not buffer.prepared


def test_rows_that_come_within_the_epochs_are_refused() -> None:
    buffer = buffer_of()
    collect(buffer, 0, 20)
    with pytest.raises(RunFailed, match="the rollout has no space"):
        buffer.push(rows_of(20, 21))


def restore(buffer: RolloutBuffer) -> RolloutBuffer:
    """Returns another buffer with the same state and rows, as restored from a checkpoint."""
    copy: Any = buffer_of(seed=99)
    copy.load_state_dict(buffer.state_dict())
    frozen = buffer.freeze(0)
    while (chunk := frozen.take()) is not None:
        copy.load_rows(frozen.first, chunk)
    return copy  # type: ignore[no-any-return]


@pytest.mark.parametrize("used", [0, 1, 3, 4, 8])
def test_a_state_goes_on_in_the_middle_of_an_epoch(used: int) -> None:
    buffer = buffer_of()
    collect(buffer, 0, 20)
    epochs(buffer, 7)
    buffer.drop()
    collect(buffer, 20, 40)
    for _ in range(used):
        buffer.sample(7)
    copy = restore(buffer)
    assert epochs(buffer, 7) == epochs(copy, 7)
    for target in (buffer, copy):
        target.drop()
        collect(target, 40, 60)
    assert epochs(buffer, 7) == epochs(copy, 7)


def test_a_state_goes_on_in_the_middle_of_a_rollout() -> None:
    buffer = buffer_of()
    buffer.push(rows_of(0, 13))
    copy = restore(buffer)
    for target in (buffer, copy):
        collect(target, 13, 20)
    assert epochs(buffer, 7) == epochs(copy, 7)


@pytest.mark.parametrize("num_envs", [1, 2, 3])
def test_a_rollout_of_more_actors_is_used_to_its_end(num_envs: int) -> None:
    saved, restored = (
        RolloutBuffer(
            RolloutConfig(n_steps=10, n_epochs=3),
            spec=SPEC,
            rng=np.random.default_rng(0),
            extras=[EPISODE_COLUMN],
            num_envs=count,
        )
        for count in (4, num_envs)
    )
    collect(saved, 0, 40)
    frozen: Any = saved.freeze(0)
    restored.load_state_dict(saved.state_dict())
    while (chunk := frozen.take()) is not None:
        restored.load_rows(frozen.first, chunk)
    assert sorted(reward for batch in epochs(restored, 8)[:5] for reward in batch) == [*range(40)]
    restored.drop()
    collect(restored, 40, 40 + 10 * num_envs)
