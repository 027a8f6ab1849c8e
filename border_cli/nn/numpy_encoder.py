"""Observations as rows of numbers, in numpy: what `encoder.py` computes in torch.

Actors encode with this, so nothing here imports torch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import accumulate
from math import prod
from typing import Any, TypeAlias

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

PIXEL_SCALE = 1 / 255

# N observations, one array or one per key of a Dict space -> [N, encoded_size(space)]
Encoder: TypeAlias = Callable[[Any], NDArray[np.float32]]


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
        case BoxSpace(shape=shape, dtype=dtype):
            return partial(_flat, prod(shape), PIXEL_SCALE if dtype == "uint8" else None)
        case DiscreteSpace(n=n):
            return partial(_one_hot, [n])
        case MultiDiscreteSpace(nvec=nvec):
            return partial(_one_hot, nvec)


def _flat(size: int, scale: float | None, values: NDArray[Any]) -> NDArray[np.float32]:
    rows = values.reshape(len(values), size).astype(np.float32, copy=False)
    return rows if scale is None else rows * np.float32(scale)


def _one_hot(counts: Sequence[int], values: NDArray[Any]) -> NDArray[np.float32]:
    starts = np.array([0, *accumulate(counts[:-1])])  # [K]  the column of each integer's 0
    columns = values.reshape(len(values), -1) + starts  # [N, K]
    rows = np.zeros((len(values), sum(counts)), np.float32)
    rows[np.arange(len(values))[:, None], columns] = 1
    return rows
