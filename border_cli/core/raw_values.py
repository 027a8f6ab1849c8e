"""Values of raw spaces, checked, as rows; and rows of actions as an environment takes them.

One check serves the trial before a run, loops, vector environments and callers that step their own:
`Values` accepts one value of a space, or N in front of its shape, and raises `BadStep` for what
numpy would broadcast, wrap, round or parse silently. Whether floats are finite and within their
bounds is checked where many rows arrive together (`trainer/intake.py`).
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

# [N] or [N, A] of a policy -> N actions as the environments want them.
ActionReader: TypeAlias = Callable[[NDArray[Any]], Sequence[Any]]
# [N, …] rows -> one array of N values as a vector environment has them, always a copy.
Batcher: TypeAlias = Callable[[NDArray[Any]], NDArray[Any]]

_INTEGERS: Final = "iub"  # kinds of dtypes
_NUMBERS: Final = "fiub"
_INTEGER: Final = (int, np.integer)
_MAPPING: Final = (dict, Mapping)  # the former is found faster
_MOST_SHOWN: Final = 80  # characters of a value


def shown(value: object) -> str:
    """`repr` of a value from an environment, in one line and cut."""
    text = " ".join(repr(value.item() if isinstance(value, np.generic) else value).split())
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}…"


def as_array(given: Any) -> NDArray[Any] | None:
    """None where numpy makes no array of it."""
    try:
        return np.asarray(given)
    except Exception:  # of an environment's `__array__`; or of lists of several lengths
        return None


def _is_whole(low: NDArray[Any], high: NDArray[Any], dtype: np.dtype[Any]) -> bool:
    """Whether the bounds are those of the dtype."""
    least, most = (False, True) if dtype.kind == "b" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    return bool(np.all(low == least) and np.all(high == most))


class Values:
    """Accepts values of one Box or of whole numbers, which become counted from 0.

    Real spaces take any real numbers, integer spaces integers within their bounds. Arrays of one
    number each are numbers.
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
        self.dtype = dtype or space.carried
        self._is_real = self.dtype.kind == "f"
        self._is_choice = space.kind == "Discrete"
        self._is_flat = space.kind.startswith("Multi")
        whole = self._is_real or _is_whole(space.low, space.high, self.dtype)
        self._low: Any = int(space.low) if self._is_choice else space.low
        self._high: Any = int(space.high) if self._is_choice else space.high
        # Arrays of this dtype and shape can be stored as they are; None: all must be checked.
        self.plain_dtype = np.dtype(space.dtype) if whole else None

    def write(self, rows: Any, i: int, given: Any) -> None:
        """Puts one value into row i.  [N, …]"""
        if self._is_choice and isinstance(given, _INTEGER) and self._low <= given <= self._high:
            rows[i] = int(given) - self._low  # at a fifth of the time
        else:
            rows[i] = self(given)

    def __call__(self, given: Any, *lead: int) -> NDArray[Any]:
        """One value; or N, where `lead` is N. Not always a copy.  [*lead, …]"""
        shape = lead + self.shape
        if (
            type(given) is ndarray
            and given.shape == shape
            and given.dtype is self.dtype is self.plain_dtype
        ):
            return given
        values = as_array(given)
        if values is None or values.dtype.kind not in (_NUMBERS if self._is_real else _INTEGERS):
            got = "objects" if values is None else values.dtype
            expected = "real numbers" if self._is_real else "integers"
            self._refuse(given, f"expected {expected}, got {got}")
        if values.shape != shape:
            if self.shape or values.shape[: len(lead)] != lead or values.size != math.prod(lead):
                self._refuse(given, f"its shape is {values.shape}, not {shape}")
            values = values.reshape(lead)
        if self._is_real or values.dtype is self.plain_dtype:
            return values.astype(self.dtype, copy=False)
        beyond = (values < self._low) | (values > self._high)
        if beyond.any():
            place = np.argwhere(beyond)[0].tolist()
            where = f" at {place}" if place else ""
            self._refuse(given, f"{values[tuple(place)]}{where} is out of bounds")
        return self._counted(values.astype(self.dtype, copy=False), lead)

    def _counted(self, values: NDArray[Any], lead: tuple[int, ...]) -> NDArray[Any]:
        if self._is_choice:
            return np.asarray(values - self._low)
        if self._is_flat:
            return np.asarray(values - self._low).reshape(*lead, -1)
        return values

    def _refuse(self, given: Any, why: str) -> NoReturn:
        raise BadStep(f"{self._name} {shown(given)} {self._complaint}: {why}")


class Parts:
    """Accepts values of a Dict of the spaces above."""

    plain_dtype = None
    shape: tuple[int, ...] = ()

    def __init__(self, space: RawDict) -> None:
        self._parts = {
            key: Values(part, f"the observation's {key!r}") for key, part in space.parts.items()
        }

    def write(self, rows: Any, i: int, given: Any) -> None:
        """Puts one value into row i of each part.  [N, …]"""
        self._refuse_other_keys(given)
        for key, part in self._parts.items():
            part.write(rows[key], i, given[key])

    def __call__(self, given: Any, *lead: int) -> dict[str, NDArray[Any]]:
        """One value; or N, where `lead` is N. Not always copies.  [*lead, …]"""
        self._refuse_other_keys(given)
        return {key: part(given[key], *lead) for key, part in self._parts.items()}

    def _refuse_other_keys(self, given: Any) -> None:
        is_dict = isinstance(given, _MAPPING)
        if not is_dict or given.keys() != self._parts.keys():
            got = list(given) if is_dict else shown(given)
            raise BadStep(f"the observation must be a dict of {list(self._parts)}, got {got}")


def observations(space: RawObservation) -> Values | Parts:
    """The check of observations of this space."""
    return Parts(space) if isinstance(space, RawDict) else Values(space)


def copied(values: Array) -> Array:
    """Checked observations in memory of their own: environments may use theirs again."""
    return map_array(ndarray.copy, values)  # C-contiguous


def action_reader(space: RawSpace) -> ActionReader:
    """How actions of a policy become those of `space`; always copies, for envs may write there."""
    if space.kind == "Discrete":
        first = int(space.start)
        if first == 0:
            return np.ndarray.tolist
        return lambda action: (action + first).tolist()
    batch = batch_of(space)
    return lambda action: list(batch(action))


def batch_of(space: RawSpace) -> Batcher:
    """How N rows become N values of the single `space`."""
    shape, dtype, start = space.shape, np.dtype(space.dtype), space.start
    if dtype == np.float64:  # rows have 32 bits, and rounding may have passed a bound
        low, high = space.low, space.high
        return lambda rows: np.clip(rows.astype(dtype).reshape(len(rows), *shape), low, high)
    if not np.any(start):
        return lambda rows: rows.astype(dtype).reshape(len(rows), *shape)
    return lambda rows: (rows.reshape(len(rows), *shape) + start).astype(dtype)
