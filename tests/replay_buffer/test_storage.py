"""The ring of a replay buffer: stored rows, their slots, types and bytes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from border_cli.core.rows import storage_nbytes
from border_cli.core.spaces import EnvSpec
from border_cli.core.types import Transitions, leaves
from border_cli.errors import RunFailed
from border_cli.replay_buffer.ring import Ring
from tests.support.spaces import pixels


def numbers_in(ring: Ring) -> list[int]:
    """Returns the numbers of the stored rows, in the order of their slots."""
    return (ring.gather(np.arange(ring.size)).reward / 2).astype(int).tolist()


def assert_same(rows: Transitions, expected: Transitions) -> None:
    for name in ("obs", "action", "reward", "discount", "next_obs"):
        ours, theirs = getattr(rows, name), getattr(expected, name)
        if isinstance(theirs, dict):
            assert list(ours) == list(theirs)
        for our_array, their_array in zip(leaves(ours), leaves(theirs), strict=True):
            assert our_array.dtype == their_array.dtype
            np.testing.assert_array_equal(our_array, their_array)


@pytest.mark.parametrize("kind", ["spec", "image_spec", "dict_spec"])
def test_every_column_comes_back_as_it_was_pushed(kind, request, make_rows):
    spec: EnvSpec = request.getfixturevalue(kind)
    ring = Ring(spec, 8)
    ring.push(make_rows(spec, 0, 5))
    assert_same(ring.gather(np.array([3, 4])), make_rows(spec, 3, 5))
    batch = ring.gather(np.array([0, 1, 2, 3]))
    assert_same(batch, make_rows(spec, 0, 4))
    np.testing.assert_array_equal(batch.index, [0, 1, 2, 3])
    np.testing.assert_array_equal(batch.weight, np.ones(4, np.float32))


def test_the_oldest_rows_make_room_across_the_wrap_around(spec, make_rows):
    ring = Ring(spec, 5)
    assert ring.push(make_rows(spec, 0, 3)) == [(0, 3)]
    assert ring.push(make_rows(spec, 3, 7)) == [(3, 5), (0, 2)]
    assert numbers_in(ring) == [5, 6, 2, 3, 4]
    assert (ring.position, ring.size) == (2, 5)


@pytest.mark.parametrize("already", [0, 1, 3, 5])
@pytest.mark.parametrize("count", [0, 1, 4, 5, 6, 11, 17])
def test_pushing_many_at_once_equals_pushing_one_by_one(spec, make_rows, already, count):
    at_once, one_by_one = Ring(spec, 5), Ring(spec, 5)
    for ring in (at_once, one_by_one):
        ring.push(make_rows(spec, 0, already))
    at_once.push(make_rows(spec, already, already + count))
    for number in range(already, already + count):
        one_by_one.push(make_rows(spec, number, number + 1))
    assert numbers_in(at_once) == numbers_in(one_by_one)
    assert at_once.position == one_by_one.position


def test_pushed_arrays_are_copied(spec, make_rows):
    ring = Ring(spec, 3)
    rows = make_rows(spec, 0, 2)
    ring.push(rows)
    rows.reward[:] = -1
    rows.obs[:] = -1
    assert numbers_in(ring) == [0, 1]
    np.testing.assert_array_equal(ring.gather(np.array([1])).obs, np.ones((1, 4)))


def test_a_batch_is_valid_until_the_next_one_of_its_size(spec, make_rows):
    ring = Ring(spec, 4)
    ring.push(make_rows(spec, 0, 4))
    first = ring.gather(np.array([0, 1]))
    second = ring.gather(np.array([2, 3]))
    assert np.shares_memory(first.obs, second.obs)
    np.testing.assert_array_equal(first.reward, [4, 6])
    third = ring.gather(np.array([0, 1, 2]))
    np.testing.assert_array_equal(first.reward, [4, 6])
    np.testing.assert_array_equal(third.reward, [0, 2, 4])


def test_sampling_from_nothing_says_what_is_missing(spec):
    with pytest.raises(RunFailed, match=r"cannot sample 64 transitions: .* empty .*warmup_period"):
        Ring(spec, 4).require_rows(64)


@pytest.mark.parametrize("shape", [(3,), (2, 2)])
def test_columns_lie_where_tensors_can_view_them(spec, make_rows, shape):
    spec = replace(spec, observation=pixels(*shape))
    assert storage_nbytes(spec, 1) == 24  # 16 + twice 3 or 4, padded to a multiple of 8
    ring = Ring(spec, 4)
    ring.push(make_rows(spec, 0, 4))
    batch = ring.gather(np.array([1, 2, 3]))
    for column in (batch.obs, batch.next_obs, batch.action, batch.reward, batch.discount):
        assert column.flags.aligned
        assert all(stride % column.itemsize == 0 for stride in column.strides)


def test_rows_of_another_shape_are_refused_and_nothing_is_written(spec, make_rows):
    ring = Ring(spec, 4)
    ring.push(make_rows(spec, 0, 2))
    stretched = replace(make_rows(spec, 2, 3), next_obs=np.zeros((1, 1), np.float32))
    with pytest.raises(ValueError, match=r"next_obs of plain must have shape \(1, 4\), got \(1, 1"):
        ring.push(stretched)
    assert numbers_in(ring) == [0, 1]


def test_rows_with_other_columns_are_refused(dict_spec, make_rows):
    ring = Ring(dict_spec, 4)
    rows = make_rows(dict_spec, 0, 1)
    without = {key: part for key, part in rows.obs.items() if key != "level"}
    with pytest.raises(ValueError, match=r"columns obs\.pixels, obs\.level, .*, got obs\.pixels"):
        ring.push(replace(rows, obs=without))


def test_real_numbers_never_become_pixels(image_spec, make_rows):
    rows = make_rows(image_spec, 0, 1)
    with pytest.raises(TypeError, match="Cannot cast array data"):
        Ring(image_spec, 4).push(replace(rows, obs=rows.obs + 0.5))
