"""Functions that are the same for numpy arrays and torch tensors: by hand, and on both."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

from border_cli.nn.arrays import (
    add_at,
    argmax,
    constant,
    expand_gradient,
    library_of,
    log_softmax,
    logsumexp,
    mask_invalid,
    scatter,
    select_action_values,
    softmax,
    split,
    take,
)

BOTH = pytest.mark.parametrize("library", [np, torch], ids=["numpy", "torch"])


def reals(library: Any, values: Any) -> Any:
    """Returns float32 numbers in a library."""
    array = np.array(values, np.float32)
    return array if library is np else torch.from_numpy(array)


def numbers(library: Any, values: Any) -> Any:
    """Returns int64 numbers in a library."""
    return np.array(values, np.int64) if library is np else torch.tensor(values)


def flags(library: Any, values: Any) -> Any:
    """Returns truth values in a library."""
    return np.array(values, bool) if library is np else torch.tensor(values)


@BOTH
def test_the_library_of_values_is_where_they_come_from(library: Any) -> None:
    assert library_of(reals(library, [1.0])) is library
    assert library_of(constant(np.arange(2), like=reals(library, [1.0]))) is library


@BOTH
def test_columns_of_each_row_are_taken(library: Any) -> None:
    values = reals(library, [[1, 2, 3], [4, 5, 6]])
    assert take(values, numbers(library, [[2], [0]])).tolist() == [[3], [4]]
    assert take(values, numbers(library, [[2, 2], [0, 1]])).tolist() == [[3, 3], [4, 5]]


@BOTH
def test_parts_are_scattered_over_zeros(library: Any) -> None:
    like = reals(library, [[1, 2, 3], [4, 5, 6]])
    columns = numbers(library, [[2, 0], [0, 1]])
    result = scatter(reals(library, [[7, 8], [9, 10]]), columns, like)
    assert result.tolist() == [[8, 0, 7], [9, 10, 0]]
    assert like.tolist() == [[1, 2, 3], [4, 5, 6]]
    one = scatter(reals(library, [[7], [8]]), numbers(library, [[1], [2]]), like)
    assert one.tolist() == [[0, 7, 0], [0, 0, 8]]


@BOTH
def test_columns_that_repeat_are_added_up(library: Any) -> None:
    target = reals(library, [[1, 0], [0, 0]])
    columns = numbers(library, [[0, 0, 1], [1, 1, 1]])
    result = add_at(target, columns, reals(library, [[1, 2, 3], [4, 5, 6]]))
    assert result.tolist() == target.tolist() == [[4, 3], [0, 15]]


@BOTH
def test_the_outputs_of_an_action_are_selected_and_their_gradient_put_back(library: Any) -> None:
    values = reals(library, [[[1, 2], [3, 4]], [[5, 6], [7, 8]]])  # 2 rows, 2 actions, 2 atoms
    action = numbers(library, [[1], [0]])
    selected = select_action_values(values, action)
    assert selected.tolist() == [[3, 4], [5, 6]]
    gradient = expand_gradient(10 * selected, values, action)
    assert gradient.tolist() == [[[0, 0], [30, 40]], [[50, 60], [0, 0]]]


@BOTH
def test_the_first_of_equal_maxima_is_taken_and_never_an_invalid_one(library: Any) -> None:
    values = reals(library, [[1, 3, 3], [2, 9, 2]])
    assert argmax(values).tolist() == [[1], [1]]
    assert mask_invalid(values, None) is values
    masked = mask_invalid(values, flags(library, [[True, False, True], [True, False, True]]))
    assert masked.tolist() == [[1, -np.inf, 3], [2, -np.inf, 2]]
    assert masked.dtype == values.dtype
    assert argmax(masked).tolist() == [[2], [0]]


@BOTH
def test_columns_are_split_into_groups(library: Any) -> None:
    parts = split(reals(library, [[1, 2, 3, 4]]), [1, 2, 1])
    assert [part.tolist() for part in parts] == [[[1]], [[2, 3]], [[4]]]


@BOTH
def test_softmax_by_hand(library: Any) -> None:
    """e^x of (ln 1, ln 2, ln 5) is (1, 2, 5), of which the sum is 8."""
    values = reals(library, np.log([[1, 2, 5], [4, 2, 2]]))
    expected = [[1 / 8, 2 / 8, 5 / 8], [1 / 2, 1 / 4, 1 / 4]]
    np.testing.assert_allclose(softmax(values), expected, rtol=1e-6)
    np.testing.assert_allclose(log_softmax(values), np.log(expected), rtol=1e-6)
    np.testing.assert_allclose(logsumexp(values), np.log([[8], [8]]), rtol=1e-6)
    columns = softmax(values, 0)
    np.testing.assert_allclose(columns, [[1 / 5, 1 / 2, 5 / 7], [4 / 5, 1 / 2, 2 / 7]], rtol=1e-6)


@BOTH
def test_values_of_any_size_and_invalid_ones_give_no_overflow(library: Any) -> None:
    values = reals(library, [[1e4, 0], [-1e4, -np.inf]])
    assert softmax(values).tolist() == [[1, 0], [1, 0]]
    assert log_softmax(values).tolist() == [[0, -1e4], [0, -np.inf]]
    assert logsumexp(values).tolist() == [[1e4], [-1e4]]


class Arguments(NamedTuple):
    """Arguments of the functions, in either library."""

    values: Any  # [B, n] float32
    columns: Any  # [B, 3] int64, different ones in each row
    action: Any  # [B, 1] int64
    mask: Any  # [B, n] bool

    @property
    def by_atom(self) -> Any:
        """Numbers for every action and atom. [B, n, n]"""
        return self.values[:, :, None] * self.values[:, None]

    @property
    def masked(self) -> Any:
        return mask_invalid(self.values, self.mask)


FUNCTIONS: dict[str, Callable[[Arguments], Any]] = {
    "take": lambda given: take(given.values, given.columns),
    "take atoms": lambda given: take(given.by_atom, given.columns),
    "scatter": lambda given: scatter(given.values[:, :3], given.columns, given.values),
    "add_at": lambda given: add_at(given.values + 0, given.columns // 2, given.values[:, :3]),
    "select_action_values": lambda given: select_action_values(given.by_atom, given.action),
    "expand_gradient": lambda given: expand_gradient(given.values, given.by_atom, given.action),
    "mask_invalid": lambda given: given.masked,
    "argmax": lambda given: argmax(given.masked),
    "softmax": lambda given: softmax(given.masked),
    "softmax of atoms": lambda given: softmax(given.by_atom, 2),
    "log_softmax": lambda given: log_softmax(given.masked),
    "logsumexp": lambda given: logsumexp(given.masked),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_arrays_and_tensors_give_the_same(name: str) -> None:
    rng = np.random.default_rng(0)
    arrays = Arguments(
        values=rng.normal(0, 3, (6, 5)).astype(np.float32),
        columns=rng.permuted(np.tile(np.arange(5), (6, 1)), axis=1)[:, :3],
        action=rng.integers(5, size=(6, 1)),
        mask=rng.random((6, 5)) < 0.5,
    )
    arrays.mask[:, 2] = True  # at least one valid action
    before = [array.copy() for array in arrays]
    in_numpy = FUNCTIONS[name](arrays)
    in_torch = FUNCTIONS[name](Arguments(*map(torch.from_numpy, arrays))).numpy()
    assert in_numpy.dtype == in_torch.dtype
    np.testing.assert_allclose(in_numpy, in_torch, rtol=1e-6, atol=1e-6)
    for array, original in zip(arrays, before, strict=True):
        np.testing.assert_array_equal(array, original)  # no argument is overwritten
