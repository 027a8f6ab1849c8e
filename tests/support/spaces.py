"""Spaces of observations and actions in few words, and values of theirs."""

from __future__ import annotations

from typing import Any

import numpy as np

from border_cli.core.spaces import BoxSpace, DictSpace, DiscreteSpace, MultiDiscreteSpace, Space


def box(shape: tuple[int, ...], dtype: str = "float32", low: Any = 0, high: Any = 1) -> BoxSpace:
    """Bounds are one for all, or have the last axes of the shape."""
    low, high = (np.broadcast_to(np.array(each, dtype), shape) for each in (low, high))
    return BoxSpace(shape=shape, dtype=dtype, low=low, high=high)


def numbers(*shape: int) -> BoxSpace:
    """Real ones of 0 to 1."""
    return box(shape)


def reals(*shape: int) -> BoxSpace:
    """Real numbers without bounds."""
    return box(shape, low=-np.inf, high=np.inf)


def pixels(*shape: int) -> BoxSpace:
    """Bytes."""
    return box(shape, "uint8", high=255)


def drawn(space: Space, rows: int, seed: int = 3) -> Any:
    """Random values: real numbers around 1 whatever their bounds, integers of all that are."""
    rng = np.random.default_rng(seed)
    match space:
        case BoxSpace(shape=shape, dtype="float32"):
            return rng.normal(1, 2, (rows, *shape)).astype(np.float32)
        case BoxSpace(shape=shape, dtype=dtype):
            ends = (np.asarray(each, np.int64) for each in (space.low, space.high))
            return rng.integers(*ends, size=(rows, *shape), endpoint=True).astype(dtype)
        case DiscreteSpace(n=n):
            return rng.integers(n, size=rows)
        case MultiDiscreteSpace(nvec=nvec):
            return rng.integers(nvec, size=(rows, len(nvec)))
        case DictSpace(spaces=spaces):
            return {
                key: drawn(part, rows, seed + i) for i, (key, part) in enumerate(spaces.items())
            }


def numbered(space: Space, numbers: Any) -> Any:
    """Values of which row k is full of numbers[k], as far as its type goes."""
    match space:
        case BoxSpace(shape=shape, dtype=dtype):
            column = numbers.reshape(-1, *(1 for _ in shape))
            return np.broadcast_to(column, (len(numbers), *shape)).astype(dtype)
        case MultiDiscreteSpace(nvec=nvec):
            return np.repeat(numbers[:, None], len(nvec), axis=1)
        case DictSpace(spaces=spaces):
            return {key: numbered(part, numbers) for key, part in spaces.items()}
    return numbers
