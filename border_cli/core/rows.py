"""How rows of experience lie in memory: structured arrays, one memory access per row.

All small columns share one structured array, so that a sampled row is fetched whole: 64 of a
million rows of CartPole take 1.9 us instead of the 4.8 us of five separate arrays. Large columns
(images) stand alone, so that what is sampled of them is contiguous.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from border_cli.core.spaces import EnvSpec, allocate
from border_cli.core.types import EPISODE, Array, Column, Transitions

PACKED_NBYTES = 1024  # a column with more bytes per row stands alone
EPISODE_COLUMN: Final[Column] = (EPISODE, np.dtype(np.int64), ())
COMMON: Final = ("obs", "action", "reward", "discount", "next_obs")  # columns of all runs


def row_columns(spec: EnvSpec, extras: Sequence[Column] = ()) -> list[Column]:
    """The columns of a row: parts of a Dict observation in its order, `extras` last."""
    nothing = Transitions(
        obs=allocate(spec.observation, 0),
        action=_leaf(allocate(spec.action, 0)),
        reward=np.empty(0, np.float32),
        discount=np.empty(0, np.float32),
        next_obs=allocate(spec.observation, 0),
    )
    common = [(name, each.dtype, each.shape[1:]) for name, each in columns_of(nothing).items()]
    return [*common, *extras]


def row_dtypes(fields: list[Column]) -> list[np.dtype[Any]]:
    """The structured types that hold one row; every column is a field of one of them."""
    packed: list[Column] = []
    alone: list[Column] = []
    for field in fields:
        _, dtype, shape = field
        nbytes = math.prod(shape) * dtype.itemsize
        (packed if nbytes <= PACKED_NBYTES else alone).append(field)
    packed.sort(key=lambda field: -field[1].alignment)  # the widest first needs the least padding
    # Aligned fields: the strides of their views are such as torch accepts.
    return [np.dtype(packed, align=True), *(np.dtype([field]) for field in alone)]


def storage_nbytes(spec: EnvSpec, capacity: int, extras: Sequence[Column] = ()) -> int:
    """Bytes that `capacity` rows will take, without allocating them."""
    return capacity * sum(each.itemsize for each in row_dtypes(row_columns(spec, extras)))


def _leaf(array: Array) -> NDArray[Any]:
    assert not isinstance(array, dict)  # actions are never dicts
    return array


def columns_of(transitions: Transitions) -> dict[str, NDArray[Any]]:
    """The arrays of the rows by name; a Dict observation gives one column per key."""
    columns: dict[str, NDArray[Any]] = {}
    for name in COMMON:
        array: Array = getattr(transitions, name)
        if isinstance(array, dict):
            columns |= {f"{name}.{key}": part for key, part in array.items()}
        else:
            columns[name] = array
    return {**columns, **transitions.extras}


def column_of(parts: Sequence[Transitions], name: str) -> list[NDArray[Any]]:
    """One column of several blocks of rows, as `columns_of` would name it."""
    field, dot, key = name.partition(".")
    if field not in COMMON:
        return [part.extras[name] for part in parts]
    arrays = [getattr(part, field) for part in parts]
    return [array[key] for array in arrays] if dot else arrays


def transitions_of(columns: dict[str, NDArray[Any]]) -> dict[str, Any]:
    """The fields of `Transitions` from its columns: what `columns_of` undoes."""
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


def sliced(rows: Transitions, part: slice) -> Transitions:
    """Some of the rows, as views."""
    columns = {name: column[part] for name, column in columns_of(rows).items()}
    return Transitions(**transitions_of(columns))


def concatenate(parts: list[Transitions]) -> Transitions:
    """All in one block; the single part itself where there is only one."""
    if len(parts) == 1:
        return parts[0]
    return Transitions(
        obs=joined_arrays([part.obs for part in parts]),
        action=np.concatenate([part.action for part in parts]),
        reward=np.concatenate([part.reward for part in parts]),
        discount=np.concatenate([part.discount for part in parts]),
        next_obs=joined_arrays([part.next_obs for part in parts]),
        extras={
            name: np.concatenate([part.extras[name] for part in parts]) for name in parts[0].extras
        },
    )


def joined_arrays(arrays: list[Array]) -> Array:
    """Blocks of rows as one."""
    first = arrays[0]
    if isinstance(first, dict):
        return {key: np.concatenate([array[key] for array in arrays]) for key in first}
    return np.concatenate(arrays)  # type: ignore[arg-type]


class Rows:
    """A fixed number of rows in memory that is given: arrays of `row_dtypes`, all of one length."""

    def __init__(self, fields: list[Column], blocks: list[NDArray[Any]]) -> None:
        self.blocks = blocks  # each [count]
        views = {name: block[name] for block in blocks for name in block.dtype.names or ()}
        self.columns = {name: views[name] for name, _, _ in fields}  # each [count, …]

    @classmethod
    def empty(cls, spec: EnvSpec, count: int, extras: Sequence[Column] = ()) -> Self:
        """Uninitialised: untouched pages cost nothing."""
        fields = row_columns(spec, extras)
        return cls(fields, [np.empty(count, dtype) for dtype in row_dtypes(fields)])

    def parts(self) -> dict[str, Any]:
        """The fields of `Transitions`, as views."""
        return transitions_of(self.columns)


def copied_rows(rows: Transitions) -> Transitions:
    """The rows in memory of their own. [M]"""
    return Transitions(
        **transitions_of({name: column.copy() for name, column in columns_of(rows).items()})
    )
