"""Encoding of observations as rows of numbers, in numpy; `features.py` does the same in torch.

Actors use it, so torch is not imported.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import accumulate
from math import prod
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from border_cli.core.spaces import (
    BoxSpace,
    DictSpace,
    DiscreteSpace,
    LeafSpace,
    MultiDiscreteSpace,
    Space,
)
from border_cli.core.types import Array

MOST_BOUND = 2**16  # wider integer bounds say nothing about typical values
LIMIT = 10.0  # standard deviations at which normalised numbers are clipped

# N observations, one array or one per key of a Dict space -> [N, encoded_size(space)]
Encoder: TypeAlias = Callable[[Any], NDArray[np.float32]]


class Scaling(NamedTuple):
    """The map from x to (x - low) * factor; each is one number, or one per column or channel."""

    low: float | NDArray[np.float32]
    factor: float | NDArray[np.float32]

    @property
    def shifts(self) -> bool:
        """True if anything but 0 is subtracted."""
        return bool(np.any(self.low))

    @property
    def stretches(self) -> bool:
        """True if any factor is not 1."""
        return bool(np.any(np.not_equal(self.factor, 1)))


IDENTITY = Scaling(0.0, 1.0)
BYTES = Scaling(0.0, 1 / 255)  # maps 0 … 255 to 0 … 1


def scaling_between(low: NDArray[Any], high: NDArray[Any]) -> Scaling:
    """Returns the scaling of integers with these bounds to 0 … 1, or to 0 if they are equal.  [K]

    Integers with a bound beyond `MOST_BOUND`, such as the maximum of the dtype, are not scaled.
    """
    low, high = low.astype(np.float64), high.astype(np.float64)
    bounded = (np.abs(low) <= MOST_BOUND) & (np.abs(high) <= MOST_BOUND)
    least = np.where(bounded, low, 0.0)
    span = np.where(bounded, high - low, 1.0)
    factor = np.divide(1.0, span, out=np.zeros_like(span), where=span > 0)
    return Scaling(_merge_equal(least), _merge_equal(factor))


def _merge_equal(values: NDArray[np.float64]) -> float | NDArray[np.float32]:
    if (values == values[:1]).all():
        return float(values[0]) if len(values) else 0.0
    return values.astype(np.float32)


def row_scaling(space: BoxSpace) -> Scaling:
    """Returns the scaling of the columns of a flattened Box; real numbers are not scaled."""
    if np.dtype(space.dtype).kind == "f":
        return IDENTITY
    low, high = (np.broadcast_to(bound, space.shape).ravel() for bound in (space.low, space.high))
    return scaling_between(low, high)


def encoded_size(space: Space) -> int:
    """Returns the size of an encoded observation."""
    match space:
        case BoxSpace(shape=shape):
            return prod(shape)
        case DiscreteSpace(n=n):
            return n
        case MultiDiscreteSpace(nvec=nvec):
            return sum(nvec)
        case DictSpace(spaces=spaces):
            return sum(encoded_size(part) for part in spaces.values())


def is_real(space: LeafSpace) -> bool:
    """Returns whether the space contains real numbers instead of integers."""
    return isinstance(space, BoxSpace) and space.dtype == "float32"


def is_vector(space: Space) -> bool:
    """Returns whether the observations are already rows of real numbers."""
    return isinstance(space, BoxSpace) and len(space.shape) == 1 and is_real(space)


def measured_columns(space: Space) -> NDArray[np.bool_]:
    """Returns which columns of an encoded row are real numbers instead of integers.  [row_size]"""
    parts = space.spaces.values() if isinstance(space, DictSpace) else [space]
    return np.concatenate([np.full(encoded_size(part), is_real(part)) for part in parts])


def encode(space: Space, obs: Array) -> NDArray[np.float32]:
    """Encodes N observations as rows.  [N, encoded_size(space)]"""
    return encoder(space)(obs)


def encoder(space: Space) -> Encoder:
    """Returns the encoder of a space, which may return its argument itself."""
    if not isinstance(space, DictSpace):
        return _make_part_encoder(space)
    parts = [(key, _make_part_encoder(part)) for key, part in space.spaces.items()]
    return lambda obs: np.concatenate([encode_part(obs[key]) for key, encode_part in parts], axis=1)


def _make_part_encoder(space: LeafSpace) -> Encoder:
    match space:
        case BoxSpace(shape=(_,), dtype="float32"):
            return lambda values: values  # already rows
        case BoxSpace(shape=shape):
            return _add_scaling(partial(_flatten, prod(shape)), row_scaling(space))
        case DiscreteSpace(n=n):
            return partial(_encode_one_hot, [n])
        case MultiDiscreteSpace(nvec=nvec):
            return partial(_encode_one_hot, nvec)


def _flatten(size: int, values: NDArray[Any]) -> NDArray[np.float32]:
    return values.reshape(len(values), size).astype(np.float32, copy=False)


def _add_scaling(encode_part: Encoder, scaling: Scaling) -> Encoder:
    low, factor = np.float32(scaling.low), np.float32(scaling.factor)
    if scaling.shifts:
        return lambda values: (encode_part(values) - low) * factor
    if scaling.stretches:
        return lambda values: encode_part(values) * factor
    return encode_part


def _encode_one_hot(counts: Sequence[int], values: NDArray[Any]) -> NDArray[np.float32]:
    starts = np.array([0, *accumulate(counts[:-1])])  # [K]  first column of each integer
    columns = values.reshape(len(values), -1) + starts  # [N, K]
    rows = np.zeros((len(values), sum(counts)), np.float32)
    rows[np.arange(len(values))[:, None], columns] = 1
    return rows
