"""Allocation of storage for observations and actions of a space."""

from __future__ import annotations

import numpy as np
import pytest

from border_cli.core.spaces import (
    DictSpace,
    DiscreteSpace,
    MultiDiscreteSpace,
    Space,
    allocate,
    row_nbytes,
)
from tests.support.spaces import numbers, pixels

PIXELS, POINT, SCALAR = pixels(2, 3), numbers(4), numbers()

LEAVES = [
    (PIXELS, (5, 2, 3), "uint8", 6),
    (POINT, (5, 4), "float32", 16),
    (SCALAR, (5,), "float32", 4),
    (DiscreteSpace(3), (5,), "int64", 8),
    (MultiDiscreteSpace((3, 2)), (5, 2), "int64", 16),
]


@pytest.mark.parametrize(("space", "shape", "dtype", "nbytes"), LEAVES)
def test_storage_has_a_row_per_value_and_the_bytes_that_were_announced(
    space: Space, shape: tuple[int, ...], dtype: str, nbytes: int
) -> None:
    array = allocate(space, 5)
    assert isinstance(array, np.ndarray)
    assert (array.shape, array.dtype.name) == (shape, dtype)
    assert row_nbytes(space) == nbytes
    assert array.nbytes == 5 * nbytes


def test_a_dict_space_has_an_array_per_key_in_the_order_of_the_keys() -> None:
    space = DictSpace({"z": POINT, "a": DiscreteSpace(2)})
    arrays = allocate(space, 3)
    assert isinstance(arrays, dict)
    assert [(key, array.shape) for key, array in arrays.items()] == [("z", (3, 4)), ("a", (3,))]
    assert row_nbytes(space) == 16 + 8


def test_no_rows_are_storage_too() -> None:
    array = allocate(POINT, 0)
    assert isinstance(array, np.ndarray)
    assert array.shape == (0, 4)
