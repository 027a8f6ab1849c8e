"""Uniform replay: sampled rows and their frequencies."""

from __future__ import annotations

import numpy as np
import pytest

from border_cli.replay_buffer.config import UniformConfig
from border_cli.replay_buffer.uniform import UniformReplayBuffer
from tests.support.buffers import buffer_of


def test_each_sampled_row_is_a_whole_stored_row(spec, make_rows):
    buffer = buffer_of("uniform", spec, 50)
    buffer.push(make_rows(spec, 0, 80))
    batch = buffer.sample(32)
    numbers = batch.action
    assert set(numbers) <= set(range(30, 80))
    np.testing.assert_array_equal(batch.obs, np.repeat(numbers[:, None], 4, axis=1))
    np.testing.assert_array_equal(batch.next_obs, np.repeat(numbers[:, None] + 1, 4, axis=1))
    np.testing.assert_array_equal(batch.reward, 2 * numbers)
    np.testing.assert_array_equal(batch.discount, (numbers / 1000).astype(np.float32))
    np.testing.assert_array_equal(batch.index, numbers % 50)
    np.testing.assert_array_equal(batch.weight, np.ones(32))
    np.testing.assert_array_equal(buffer.rows(batch.index).action, numbers)


def test_every_stored_row_is_drawn_equally_often_and_no_other(spec, make_rows):
    buffer = buffer_of("uniform", spec, 100)
    buffer.push(make_rows(spec, 0, 10))
    drawn = np.concatenate([buffer.sample(1000).index.copy() for _ in range(20)])
    counts = np.bincount(drawn)
    # 20,000 draws of probability 0.1: standard deviation sqrt(20000 * 0.1 * 0.9) = 42
    np.testing.assert_allclose(counts, np.full(10, 2000), atol=5 * 42)


@pytest.mark.parametrize("rows", [1, 3, 7, 8, 1000, 1024])
def test_the_largest_random_number_selects_the_last_row(spec, make_rows, rows):
    class Largest:
        def random(self, shape):
            return np.full(shape, 1 - 2**-53)  # the largest value that a generator returns

    buffer = UniformReplayBuffer(UniformConfig(capacity=2000), spec=spec, rng=Largest())
    buffer.push(make_rows(spec, 0, rows))
    np.testing.assert_array_equal(buffer.sample(3).index, np.full(3, rows - 1))


def test_a_batch_may_be_larger_than_what_is_stored(spec, make_rows):
    buffer = buffer_of("uniform", spec, 1)
    buffer.push(make_rows(spec, 6, 7))
    np.testing.assert_array_equal(buffer.sample(5).action, [6, 6, 6, 6, 6])
