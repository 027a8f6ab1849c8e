"""Observations as rows of numbers, in numpy: what `encoder.py` computes in torch.

Actors encode with this, so nothing here imports torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from math import prod
from typing import Any

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
    if isinstance(obs, dict):
        assert isinstance(space, DictSpace)
        parts = [_encode_part(part, obs[key]) for key, part in space.spaces.items()]
        return np.concatenate(parts, axis=1)
    assert not isinstance(space, DictSpace)
    return _encode_part(space, obs)


def _encode_part(space: LeafSpace, values: NDArray[Any]) -> NDArray[np.float32]:
    match space:
        case BoxSpace(shape=shape, dtype=dtype):
            rows = values.reshape(len(values), prod(shape)).astype(np.float32, copy=False)
            return rows * np.float32(PIXEL_SCALE) if dtype == "uint8" else rows
        case DiscreteSpace(n=n):
            return _one_hot([n], values)
        case MultiDiscreteSpace(nvec=nvec):
            return _one_hot(nvec, values)


def _one_hot(counts: Sequence[int], values: NDArray[Any]) -> NDArray[np.float32]:
    starts = np.array([0, *accumulate(counts[:-1])])  # [K]  the column of each integer's 0
    columns = values.reshape(len(values), -1) + starts  # [N, K]
    rows = np.zeros((len(values), sum(counts)), np.float32)
    rows[np.arange(len(values))[:, None], columns] = 1
    return rows
