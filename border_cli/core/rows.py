"""The memory layout of transitions: rows of structured arrays, one memory access per row.

All small columns share one structured array, so that a sampled row is read at once: sampling 64 of
a million rows of CartPole takes 1.9 us, instead of 4.8 us with five separate arrays. Large columns
(images) have separate arrays, so that their samples are contiguous.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from border_cli.core.spaces import EnvSpec, allocate
from border_cli.core.types import EPISODE, Array, Column, Transitions, combine_arrays

PACKED_NBYTES = 1024  # a column with more bytes per row gets a separate array
EPISODE_COLUMN: Final[Column] = (EPISODE, np.dtype(np.int64), ())
COMMON: Final = ("obs", "action", "reward", "discount", "next_obs")  # columns that every run has


def row_columns(spec: EnvSpec, extras: Sequence[Column] = ()) -> list[Column]:
    """Returns the columns of a row: parts of a Dict observation in its order, `extras` last."""
    empty = Transitions(
        obs=allocate(spec.observation, 0),
        action=_leaf(allocate(spec.action, 0)),
        reward=np.empty(0, np.float32),
        discount=np.empty(0, np.float32),
        next_obs=allocate(spec.observation, 0),
    )
    common = [(name, array.dtype, array.shape[1:]) for name, array in columns_of(empty).items()]
    return [*common, *extras]


def row_dtypes(fields: list[Column]) -> list[np.dtype[Any]]:
    """Returns the structured dtypes of a row; every column is a field of one of them."""
    packed: list[Column] = []
    separate: list[Column] = []
    for field in fields:
        _, dtype, shape = field
        nbytes = math.prod(shape) * dtype.itemsize
        (packed if nbytes <= PACKED_NBYTES else separate).append(field)
    packed.sort(key=lambda field: -field[1].alignment)  # widest first, for the least padding
    # Aligned, so that torch accepts the strides of views of single fields.
    return [np.dtype(packed, align=True), *(np.dtype([field]) for field in separate)]


def storage_nbytes(spec: EnvSpec, capacity: int, extras: Sequence[Column] = ()) -> int:
    """Returns the bytes of `capacity` rows, without allocating them."""
    return capacity * sum(dtype.itemsize for dtype in row_dtypes(row_columns(spec, extras)))


def _leaf(array: Array) -> NDArray[Any]:
    assert not isinstance(array, dict)  # actions are never dicts
    return array


def columns_of(transitions: Transitions) -> dict[str, NDArray[Any]]:
    """Returns the arrays of the rows by name; a Dict observation has one column per key."""
    columns: dict[str, NDArray[Any]] = {}
    for name in COMMON:
        array: Array = getattr(transitions, name)
        if isinstance(array, dict):
            columns |= {f"{name}.{key}": part for key, part in array.items()}
        else:
            columns[name] = array
    return {**columns, **transitions.extras}


def column_of(parts: Sequence[Transitions], name: str) -> list[NDArray[Any]]:
    """Returns the arrays of one column, named as in `columns_of`, of several blocks of rows."""
    field, dot, key = name.partition(".")
    if field not in COMMON:
        return [part.extras[name] for part in parts]
    arrays = [getattr(part, field) for part in parts]
    return [array[key] for array in arrays] if dot else arrays


def transitions_of(columns: dict[str, NDArray[Any]]) -> Transitions:
    """Builds rows from columns; the inverse of `columns_of`."""
    return Transitions(**fields_of(columns))


def fields_of(columns: dict[str, NDArray[Any]]) -> dict[str, Any]:
    """Returns the fields of `Transitions` with these columns."""
    parts: dict[str, Any] = {"extras": {}}
    for column, array in columns.items():
        name, dot, key = column.partition(".")
        if name not in COMMON:
            parts["extras"][column] = array
        elif dot:
            parts.setdefault(name, {})[key] = array
        else:
            parts[name] = array
    return parts


def slice_rows(rows: Transitions, part: slice) -> Transitions:
    """Returns a slice of the rows, as views."""
    return transitions_of({name: column[part] for name, column in columns_of(rows).items()})


def concatenate(parts: list[Transitions]) -> Transitions:
    """Joins blocks of rows; a single block is returned without a copy."""
    if len(parts) == 1:
        return parts[0]
    return Transitions(
        obs=combine_arrays(np.concatenate, [part.obs for part in parts]),
        action=np.concatenate([part.action for part in parts]),
        reward=np.concatenate([part.reward for part in parts]),
        discount=np.concatenate([part.discount for part in parts]),
        next_obs=combine_arrays(np.concatenate, [part.next_obs for part in parts]),
        extras={
            name: np.concatenate([part.extras[name] for part in parts]) for name in parts[0].extras
        },
    )


class Rows:
    """A fixed number of rows in given arrays of equal length, with dtypes from `row_dtypes`."""

    def __init__(self, fields: list[Column], blocks: list[NDArray[Any]]) -> None:
        self.blocks = blocks  # each [count]
        views = {name: block[name] for block in blocks for name in block.dtype.names or ()}
        self.columns = {name: views[name] for name, _, _ in fields}  # each [count, …]

    @classmethod
    def empty(cls, spec: EnvSpec, count: int, extras: Sequence[Column] = ()) -> Self:
        """Allocates uninitialised rows; untouched pages take no memory."""
        fields = row_columns(spec, extras)
        return cls(fields, [np.empty(count, dtype) for dtype in row_dtypes(fields)])

    def parts(self) -> dict[str, Any]:
        """Returns the fields of `Transitions`, as views."""
        return fields_of(self.columns)


def copy_rows(rows: Transitions) -> Transitions:
    """Copies the rows into new arrays. [M]"""
    return transitions_of({name: column.copy() for name, column in columns_of(rows).items()})
