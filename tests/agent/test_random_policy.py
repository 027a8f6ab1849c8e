"""Actions drawn from any space."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from border_cli.agent.policies import RandomPolicy
from border_cli.core.spaces import BoxSpace, DiscreteSpace, LeafSpace, MultiDiscreteSpace

ROWS = 10_000


def box(low: Any, high: Any) -> BoxSpace:
    low, high = np.array(low, np.float32), np.array(high, np.float32)
    return BoxSpace(shape=low.shape, dtype="float32", low=low, high=high)


def draw(space: LeafSpace, rows: int = ROWS, seed: int = 0) -> np.ndarray:
    obs = {"any": np.zeros((rows, 2))}
    return RandomPolicy(space, np.random.default_rng(seed)).act(obs, explore=False)


def test_discrete_actions_are_equally_frequent():
    action = draw(DiscreteSpace(4))
    assert action.dtype == np.int64
    assert np.bincount(action) / ROWS == pytest.approx([0.25] * 4, abs=0.025)


def test_several_discrete_actions_are_drawn_apart():
    action = draw(MultiDiscreteSpace((2, 5)))
    assert action.shape == (ROWS, 2)
    assert action.dtype == np.int64
    assert np.bincount(action[:, 0]) / ROWS == pytest.approx([0.5] * 2, abs=0.025)
    assert np.bincount(action[:, 1]) / ROWS == pytest.approx([0.2] * 5, abs=0.025)


def test_a_bounded_box_is_filled_evenly():
    action = draw(box([-2, 10], [4, 11]))
    assert action.shape == (ROWS, 2)
    assert action.dtype == np.float32
    for column, (low, high) in zip(action.T, [(-2, 4), (10, 11)], strict=True):
        assert low <= column.min()
        assert column.max() <= high
        parts, _ = np.histogram(column, bins=5, range=(low, high))
        assert parts / ROWS == pytest.approx([0.2] * 5, abs=0.025)


def test_an_open_box_gives_standard_normals():
    column = draw(box([-np.inf], [np.inf]))[:, 0]
    assert column.mean() == pytest.approx(0, abs=0.05)
    assert column.std() == pytest.approx(1, abs=0.05)


def test_a_half_open_box_is_kept_on_its_side():
    action = draw(box([3, -np.inf], [np.inf, -1]))
    assert action[:, 0].min() >= 3
    assert action[:, 1].max() <= -1
    assert np.isfinite(action).all()


def test_a_box_keeps_its_shape():
    assert draw(box(np.zeros((2, 3)), np.ones((2, 3))), rows=5).shape == (5, 2, 3)


def test_one_seed_gives_one_sequence():
    space = box([0], [1])
    np.testing.assert_array_equal(draw(space, seed=1), draw(space, seed=1))
    assert (draw(space, seed=1) != draw(space, seed=2)).any()
