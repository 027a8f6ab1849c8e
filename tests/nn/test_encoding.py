"""Encoding of observations as inputs of the first dense layer."""

from __future__ import annotations

import numpy as np
import pytest

from border_cli.core.spaces import DictSpace, DiscreteSpace, MultiDiscreteSpace
from border_cli.nn.encoding import encode, encoded_size
from tests.support.spaces import box


def test_real_numbers_are_flattened_row_by_row():
    obs = np.array([[[1, 2], [3, 4]], [[5, 6], [7, 8]]], np.float32)
    rows = encode(box((2, 2), "float32"), obs)
    assert rows.dtype == np.float32
    assert rows.tolist() == [[1, 2, 3, 4], [5, 6, 7, 8]]


@pytest.mark.parametrize("high", [1, 7.5, np.inf])
def test_flat_real_numbers_are_rows_already_whatever_their_bounds(high: float):
    obs = np.array([[1, 2]], np.float32)
    assert encode(box((2,), "float32", -high, high), obs) is obs


@pytest.mark.parametrize(
    ("dtype", "low", "high", "given", "expected"),
    [
        ("uint8", 0, 1, [0, 1, 1], [0, 1, 1]),
        ("bool", 0, 1, [0, 1, 1], [0, 1, 1]),
        ("uint8", 0, 255, [0, 51, 255], [0, 0.2, 1]),
        ("uint8", 10, 20, [10, 15, 20], [0, 0.5, 1]),
        ("int8", -128, 127, [-128, 0, 127], [0, 128 / 255, 1]),
        ("int64", -4, 4, [-4, 0, 3], [0, 0.5, 0.875]),
        ("uint16", 0, 65535, [0, 13107, 65535], [0, 0.2, 1]),
        ("uint8", 7, 7, [7, 7, 7], [0, 0, 0]),
    ],
)
def test_integers_become_0_to_1_by_the_bounds_of_their_space(
    dtype: str, low: int, high: int, given: list[int], expected: list[float]
):
    rows = encode(box((3,), dtype, low, high), np.array([given], dtype))
    assert rows.dtype == np.float32
    np.testing.assert_allclose(rows, [expected], rtol=1e-6)


def test_each_column_has_bounds_of_its_own():
    space = box((2, 2), "int32", [[0, -1], [5, 0]], [[10, 1], [5, 2**31 - 1]])
    obs = np.array([[[5, 0], [5, 300]], [[10, -1], [5, 0]]], np.int32)
    # The third column is constant; the fourth is bounded only by its type.
    assert encode(space, obs).tolist() == [[0.5, 0.5, 0, 300], [1, 0, 0, 0]]


@pytest.mark.parametrize("dtype", ["int32", "int64", "uint32", "uint64"])
def test_integers_whose_bounds_are_those_of_a_wide_type_stay_as_they_are(dtype: str):
    limits = np.iinfo(dtype)
    space = box((3,), dtype, limits.min, limits.max)
    assert encode(space, np.array([[0, 51, 255]], dtype)).tolist() == [[0, 51, 255]]


def test_all_of_a_byte_is_divided_by_255_to_the_bit():
    obs = np.arange(256, dtype=np.uint8)[None]
    expected = obs.astype(np.float32) * np.float32(1 / 255)
    assert encode(box((256,), "uint8", 0, 255), obs).tobytes() == expected.tobytes()


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
