"""Sum and minimum trees, compared with plain NumPy sums, minima and searches."""

from __future__ import annotations

import numpy as np
import pytest

from border_cli.replay_buffer.sum_tree import MinTree, SumTree

CAPACITIES = [1, 2, 31, 32, 33, 1023, 1024, 1025, 32 * 1024, 32 * 1024 + 1, 40_000]


def search(values: np.ndarray, mass: np.ndarray) -> np.ndarray:
    """Returns the first index at which the running sum exceeds the mass."""
    return np.searchsorted(np.cumsum(values), mass, side="right")


@pytest.mark.parametrize("capacity", CAPACITIES)
def test_random_operations_agree_with_a_plain_array(capacity):
    rng = np.random.default_rng(capacity)
    sums, minima = SumTree(capacity), MinTree(capacity)
    plain = np.zeros(capacity)
    unset = np.ones(capacity, bool)
    for _ in range(60):
        if rng.random() < 0.4:
            start, end = sorted(rng.integers(0, capacity + 1, 2))
            start = min(start, end - 1) if end else 0
            end = max(end, start + 1)
            value = float(rng.integers(0, 9))
            sums.fill(start, end, value)
            minima.fill(start, end, value)
            plain[start:end], unset[start:end] = value, False
        else:
            index = rng.integers(0, capacity, rng.integers(1, 100))
            values = rng.integers(0, 1000, len(index)).astype(np.float64)
            sums.set(index, values)
            minima.set(index, values)
            for slot, value in zip(index, values, strict=True):
                plain[slot], unset[slot] = value, False
        # Integers below 2**53 add up exactly in any order.
        assert sums.total == plain.sum()
        assert minima.smallest == np.where(unset, np.inf, plain).min()
        np.testing.assert_array_equal(sums.get(np.arange(capacity)), plain)
        if plain.sum() > 0:
            mass = np.floor(rng.random(64) * plain.sum())
            np.testing.assert_array_equal(sums.find(mass), search(plain, mass))


def test_the_minimum_rises_again_when_its_row_does():
    tree = MinTree(2000)
    assert tree.smallest == np.inf
    tree.fill(0, 2000, 5.0)
    tree.set(np.array([1999]), np.array([1.0]))
    assert tree.smallest == 1
    tree.set(np.array([1999]), np.array([7.0]))
    assert tree.smallest == 5


@pytest.mark.slow
@pytest.mark.parametrize("capacity", [7, 1024, 1025, 40_000])
def test_no_mass_ends_at_an_index_of_value_zero(capacity):
    rng = np.random.default_rng(3)
    for attempt in range(40):
        tree = SumTree(capacity)
        stored = rng.choice(capacity, min(capacity // 2, 1 + 10 * attempt), replace=False)
        # values of many magnitudes, so that every sum is rounded
        tree.set(stored, 10.0 ** rng.uniform(-12, 6, len(stored)))
        total = tree.total
        edges = np.cumsum(tree.get(np.arange(capacity)))
        mass = np.concatenate(
            [
                [0.0, total, np.nextafter(total, 0), np.nextafter(total, np.inf), 2 * total],
                edges,
                np.nextafter(edges, np.inf),
                np.nextafter(edges, 0),
            ]
        )
        indices = tree.find(mass)
        assert tree.get(indices).min() > 0


def test_a_mass_past_a_rounded_sum_stays_within_its_block():
    """The total and the running sum of the children differ in the last digit, due to rounding."""
    rng = np.random.default_rng(11)
    rounded = 0
    for _ in range(300):
        tree = SumTree(2048)
        values = rng.random(20)
        tree.set(np.arange(20), values)
        tree.set(np.arange(64, 84), values)
        running = np.cumsum(values)[-1]
        rounded += running < tree.total / 2
        mass = np.nextafter(np.array([tree.total / 2, tree.total]), 0)
        np.testing.assert_array_equal(tree.find(mass), [19, 83])
    assert rounded > 10  # rounding has occurred


def test_sums_do_not_drift():
    rng = np.random.default_rng(5)
    tree = SumTree(4096)
    for _ in range(2000):
        tree.set(rng.integers(0, 4096, 32), 10.0 ** rng.uniform(-8, 8, 32))
    tree.fill(0, 4096, 0.0)
    tree.set(np.array([17]), np.array([1e-6]))
    assert tree.total == 1e-6


def test_a_tree_of_zeros_has_nothing_to_find():
    with pytest.raises(ValueError, match="every value of the tree is 0"):
        SumTree(100).find(np.array([0.0]))


@pytest.mark.parametrize("index", [1030, 1055])
def test_an_index_past_the_capacity_is_refused(index):
    # 1,030 leaves are padded to 1,056
    with pytest.raises(IndexError, match="out of bounds"):
        SumTree(1030).set(np.array([index]), np.array([1.0]))
