"""Conversion of raw observations to rows, with validation, and of rows of actions to raw actions.

The trial before a run, loops over environments, vector environments and callers with their own
environment share this validation. `ValueConverter` accepts one value of a space, or N with a
leading axis, and raises `BadStep` for anything that numpy would silently broadcast, wrap, round or
parse. Whether floats are finite and within bounds is checked for many rows at a time
(`trainer/intake.py`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NoReturn, TypeAlias

import numpy as np
from numpy import ndarray
from numpy.typing import NDArray

from border_cli.core.spaces import (
    RawDict,
    RawObservation,
    RawSpace,
)
from border_cli.core.types import Array, map_array
from border_cli.errors import BadStep

# Actions of a policy, [N] or [N, A] -> N actions that the environments accept.
ActionReader: TypeAlias = Callable[[NDArray[Any]], Sequence[Any]]
# Rows [N, …] -> one array of N values that a vector environment accepts, always a copy.
Batcher: TypeAlias = Callable[[NDArray[Any]], NDArray[Any]]

_INTEGERS: Final = "iub"  # kinds of dtypes
_NUMBERS: Final = "fiub"
_INTEGER: Final = (int, np.integer)
_MAPPING: Final = (dict, Mapping)  # dict first: that check is faster
_MOST_SHOWN: Final = 80  # characters of a value in a message


def format_value(value: object) -> str:
    """Returns the `repr` of a value from an environment, on one line and truncated."""
    text = " ".join(repr(value.item() if isinstance(value, np.generic) else value).split())
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}…"


def as_array(value: Any) -> NDArray[Any] | None:
    """Converts a value to an array; returns None if numpy cannot."""
    try:
        return np.asarray(value)
    except Exception:  # raised by `__array__` of a value, or by lists of unequal lengths
        return None


def _spans_dtype(low: NDArray[Any], high: NDArray[Any], dtype: np.dtype[Any]) -> bool:
    """Returns whether the bounds are the limits of the dtype."""
    least, most = (False, True) if dtype.kind == "b" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    return bool(np.all(low == least) and np.all(high == most))


class ValueConverter:
    """A validating converter of Box or integer values to rows, in which integers start at 0.

    Real spaces accept any real numbers, integer spaces integers within their bounds. An array with
    a single element is accepted as a number.
    """

    def __init__(
        self,
        space: RawSpace,
        name: str = "the observation",
        complaint: str | None = None,
        dtype: np.dtype[Any] | None = None,
    ) -> None:
        self._name = name
        self._complaint = complaint or f"does not fit {' '.join(space.text.split())}"
        self.shape = space.shape
        self.dtype = dtype or space.row_dtype
        self._is_real = self.dtype.kind == "f"
        self._is_choice = space.kind == "Discrete"
        self._is_flat = space.kind.startswith("Multi")
        unbounded = self._is_real or _spans_dtype(space.low, space.high, self.dtype)
        self._low: Any = int(space.low) if self._is_choice else space.low
        self._high: Any = int(space.high) if self._is_choice else space.high
        # Arrays of this dtype and shape need no checks; None means that all are checked.
        self.plain_dtype = np.dtype(space.dtype) if unbounded else None

    def write(self, rows: Any, i: int, value: Any) -> None:
        """Writes one value to row i.  [N, …]"""
        if self._is_choice and isinstance(value, _INTEGER) and self._low <= value <= self._high:
            rows[i] = int(value) - self._low  # five times faster than the general conversion
        else:
            rows[i] = self(value)

    def __call__(self, value: Any, *lead: int) -> NDArray[Any]:
        """Converts one value, or N values if `lead` is N. Not always a copy.  [*lead, …]"""
        shape = lead + self.shape
        if (
            type(value) is ndarray
            and value.shape == shape
            and value.dtype is self.dtype is self.plain_dtype
        ):
            return value
        values = as_array(value)
        if values is None or values.dtype.kind not in (_NUMBERS if self._is_real else _INTEGERS):
            got = "objects" if values is None else values.dtype
            expected = "real numbers" if self._is_real else "integers"
            self._refuse(value, f"expected {expected}, got {got}")
        if values.shape != shape:
            if self.shape or values.shape[: len(lead)] != lead or values.size != math.prod(lead):
                self._refuse(value, f"its shape is {values.shape}, not {shape}")
            values = values.reshape(lead)
        if self._is_real or values.dtype is self.plain_dtype:
            return values.astype(self.dtype, copy=False)
        out_of_bounds = (values < self._low) | (values > self._high)
        if out_of_bounds.any():
            index = np.argwhere(out_of_bounds)[0].tolist()
            location = f" at {index}" if index else ""
            self._refuse(value, f"{values[tuple(index)]}{location} is out of bounds")
        return self._shift_to_zero(values.astype(self.dtype, copy=False), lead)

    def _shift_to_zero(self, values: NDArray[Any], lead: tuple[int, ...]) -> NDArray[Any]:
        if self._is_choice:
            return np.asarray(values - self._low)
        if self._is_flat:
            return np.asarray(values - self._low).reshape(*lead, -1)
        return values

    def _refuse(self, value: Any, reason: str) -> NoReturn:
        raise BadStep(f"{self._name} {format_value(value)} {self._complaint}: {reason}")


class DictConverter:
    """A validating converter of Dict values, part by part."""

    plain_dtype = None
    shape: tuple[int, ...] = ()

    def __init__(self, space: RawDict) -> None:
        self._parts = {
            key: ValueConverter(part, f"the observation's {key!r}")
            for key, part in space.parts.items()
        }

    def write(self, rows: Any, i: int, value: Any) -> None:
        """Writes one value to row i of each part.  [N, …]"""
        self._refuse_other_keys(value)
        for key, part in self._parts.items():
            part.write(rows[key], i, value[key])

    def __call__(self, value: Any, *lead: int) -> dict[str, NDArray[Any]]:
        """Converts one value, or N values if `lead` is N. Not always copies.  [*lead, …]"""
        self._refuse_other_keys(value)
        return {key: part(value[key], *lead) for key, part in self._parts.items()}

    def _refuse_other_keys(self, value: Any) -> None:
        is_dict = isinstance(value, _MAPPING)
        if not is_dict or value.keys() != self._parts.keys():
            got = list(value) if is_dict else format_value(value)
            raise BadStep(f"the observation must be a dict of {list(self._parts)}, got {got}")


def make_converter(space: RawObservation) -> ValueConverter | DictConverter:
    """Returns the validating converter for observations of this space."""
    return DictConverter(space) if isinstance(space, RawDict) else ValueConverter(space)


def copy_values(values: Array) -> Array:
    """Copies validated observations, because environments may reuse their arrays."""
    return map_array(ndarray.copy, values)  # C-contiguous


def action_reader(space: RawSpace) -> ActionReader:
    """Returns a function from policy actions to raw actions; it copies, as envs may modify them."""
    if space.kind == "Discrete":
        first = int(space.start)
        if first == 0:
            return np.ndarray.tolist
        return lambda action: (action + first).tolist()
    batch = batch_of(space)
    return lambda action: list(batch(action))


def batch_of(space: RawSpace) -> Batcher:
    """Returns a function from N rows to an array of N values of `space`."""
    shape, dtype, start = space.shape, np.dtype(space.dtype), space.start
    if dtype == np.float64:  # rows are float32, and rounding may have crossed a bound
        low, high = space.low, space.high
        return lambda rows: np.clip(rows.astype(dtype).reshape(len(rows), *shape), low, high)
    if not np.any(start):
        return lambda rows: rows.astype(dtype).reshape(len(rows), *shape)
    return lambda rows: (rows.reshape(len(rows), *shape) + start).astype(dtype)
