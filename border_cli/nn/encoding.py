"""Observations as rows of numbers, in numpy: what `features.py` computes in torch.

Actors encode with this, so nothing here imports torch.
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

MOST_BOUND = 2**16  # a wider bound of an integer tells nothing about its usual size
LIMIT = 10.0  # deviations at which normalised numbers are cut; TD3-BC's paper has no limit

# N observations, one array or one per key of a Dict space -> [N, encoded_size(space)]
Encoder: TypeAlias = Callable[[Any], NDArray[np.float32]]


class Scaling(NamedTuple):
    """x becomes (x - low) * factor; both are one number, or one per column or channel."""

    low: float | NDArray[np.float32]
    factor: float | NDArray[np.float32]

    @property
    def shifts(self) -> bool:
        """Whether anything is subtracted."""
        return bool(np.any(self.low))

    @property
    def stretches(self) -> bool:
        """Whether anything is multiplied by other than 1."""
        return bool(np.any(np.not_equal(self.factor, 1)))


AS_IT_IS = Scaling(0.0, 1.0)
BYTES = Scaling(0.0, 1 / 255)  # of 0 to 255


def scaling_between(low: NDArray[Any], high: NDArray[Any]) -> Scaling:
    """The scaling of integers between these bounds to 0 … 1; to 0 where there is only one.  [K]

    An integer with a bound beyond `MOST_BOUND`, such as the greatest of its dtype, stays as it is.
    """
    low, high = low.astype(np.float64), high.astype(np.float64)
    bounded = (np.abs(low) <= MOST_BOUND) & (np.abs(high) <= MOST_BOUND)
    least = np.where(bounded, low, 0.0)
    span = np.where(bounded, high - low, 1.0)
    factor = np.divide(1.0, span, out=np.zeros_like(span), where=span > 0)
    return Scaling(_one_or_all(least), _one_or_all(factor))


def _one_or_all(values: NDArray[np.float64]) -> float | NDArray[np.float32]:
    if (values == values[:1]).all():
        return float(values[0]) if len(values) else 0.0
    return values.astype(np.float32)


def row_scaling(space: BoxSpace) -> Scaling:
    """The scaling of the columns of a flattened Box; real numbers stay as they are."""
    if np.dtype(space.dtype).kind == "f":
        return AS_IT_IS
    low, high = (np.broadcast_to(each, space.shape).ravel() for each in (space.low, space.high))
    return scaling_between(low, high)


def encoded_size(space: Space) -> int:
    """Numbers per encoded observation."""
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
    """Whether its numbers are real, and not integers."""
    return isinstance(space, BoxSpace) and space.dtype == "float32"


def is_vector(space: Space) -> bool:
    """Whether its observations are rows of real numbers already."""
    return isinstance(space, BoxSpace) and len(space.shape) == 1 and is_real(space)


def measured_columns(space: Space) -> NDArray[np.bool_]:
    """Which columns of an encoded row are real numbers, and not integers.  [row_size]"""
    parts = space.spaces.values() if isinstance(space, DictSpace) else [space]
    return np.concatenate([np.full(encoded_size(part), is_real(part)) for part in parts])


def encode(space: Space, obs: Array) -> NDArray[np.float32]:
    """N observations as rows.  [N, encoded_size(space)]"""
    return encoder(space)(obs)


def encoder(space: Space) -> Encoder:
    """How observations of the space become rows; may hand over the very array that it is given."""
    if not isinstance(space, DictSpace):
        return _encoder_of_part(space)
    parts = [(key, _encoder_of_part(part)) for key, part in space.spaces.items()]
    return lambda obs: np.concatenate([encode_part(obs[key]) for key, encode_part in parts], axis=1)


def _encoder_of_part(space: LeafSpace) -> Encoder:
    match space:
        case BoxSpace(shape=(_,), dtype="float32"):
            return lambda values: values  # they are rows already
        case BoxSpace(shape=shape):
            return _scaled(partial(_flat, prod(shape)), row_scaling(space))
        case DiscreteSpace(n=n):
            return partial(_one_hot, [n])
        case MultiDiscreteSpace(nvec=nvec):
            return partial(_one_hot, nvec)


def _flat(size: int, values: NDArray[Any]) -> NDArray[np.float32]:
    return values.reshape(len(values), size).astype(np.float32, copy=False)


def _scaled(encode_part: Encoder, scaling: Scaling) -> Encoder:
    low, factor = np.float32(scaling.low), np.float32(scaling.factor)
    if scaling.shifts:
        return lambda values: (encode_part(values) - low) * factor
    if scaling.stretches:
        return lambda values: encode_part(values) * factor
    return encode_part


def _one_hot(counts: Sequence[int], values: NDArray[Any]) -> NDArray[np.float32]:
    starts = np.array([0, *accumulate(counts[:-1])])  # [K]  the column of each integer's 0
    columns = values.reshape(len(values), -1) + starts  # [N, K]
    rows = np.zeros((len(values), sum(counts)), np.float32)
    rows[np.arange(len(values))[:, None], columns] = 1
    return rows
