"""What an observation becomes before the first dense layer."""

from __future__ import annotations

import numpy as np

from border_cli.core.spaces import BoxSpace, DictSpace, DiscreteSpace, MultiDiscreteSpace
from border_cli.nn.numpy_encoder import encode, encoded_size


def box(shape: tuple[int, ...], dtype: str) -> BoxSpace:
    return BoxSpace(shape=shape, dtype=dtype, low=np.zeros(shape), high=np.ones(shape))


def test_real_numbers_are_flattened_row_by_row():
    obs = np.array([[[1, 2], [3, 4]], [[5, 6], [7, 8]]], np.float32)
    rows = encode(box((2, 2), "float32"), obs)
    assert rows.dtype == np.float32
    assert rows.tolist() == [[1, 2, 3, 4], [5, 6, 7, 8]]


def test_flat_real_numbers_are_rows_already_and_wider_integers_become_real():
    obs = np.array([[1, 2]], np.float32)
    assert encode(box((2,), "float32"), obs) is obs
    rows = encode(box((2,), "int64"), np.array([[1, -2]]))
    assert (rows.dtype, rows.tolist()) == (np.float32, [[1, -2]])


def test_pixels_are_scaled_to_one_and_other_integers_are_not():
    obs = np.array([[0, 51, 255]], np.uint8)
    np.testing.assert_allclose(encode(box((3,), "uint8"), obs), [[0, 0.2, 1]], rtol=1e-6)
    assert encode(box((3,), "int64"), obs.astype(np.int64)).tolist() == [[0, 51, 255]]


def test_an_integer_becomes_a_row_with_a_single_one():
    rows = encode(DiscreteSpace(3), np.array([2, 0]))
    assert rows.tolist() == [[0, 0, 1], [1, 0, 0]]


def test_several_integers_become_their_rows_side_by_side():
    rows = encode(MultiDiscreteSpace((2, 3)), np.array([[1, 0], [0, 2]]))
    assert rows.tolist() == [[0, 1, 1, 0, 0], [1, 0, 0, 0, 1]]


def test_the_parts_of_a_dict_stand_in_the_order_of_the_space():
    space = DictSpace({"place": DiscreteSpace(2), "speed": box((1,), "float32")})
    obs = {"speed": np.array([[0.5]], np.float32), "place": np.array([1])}
    assert encode(space, obs).tolist() == [[0, 1, 0.5]]
    assert encoded_size(space) == 3
