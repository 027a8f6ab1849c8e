"""Short constructors of spaces, and values in them."""

from __future__ import annotations

from typing import Any

import numpy as np

from border_cli.core.spaces import BoxSpace, DictSpace, DiscreteSpace, MultiDiscreteSpace, Space


def box(shape: tuple[int, ...], dtype: str = "float32", low: Any = 0, high: Any = 1) -> BoxSpace:
    """Builds a box; `low` and `high` are broadcast to its shape."""
    low, high = (np.broadcast_to(np.array(bound, dtype), shape) for bound in (low, high))
    return BoxSpace(shape=shape, dtype=dtype, low=low, high=high)


def numbers(*shape: int) -> BoxSpace:
    """Returns a box of real numbers from 0 to 1."""
    return box(shape)


def reals(*shape: int) -> BoxSpace:
    """Returns an unbounded box of real numbers."""
    return box(shape, low=-np.inf, high=np.inf)


def pixels(*shape: int) -> BoxSpace:
    """Returns a box of bytes, 0 to 255."""
    return box(shape, "uint8", high=255)


def drawn(space: Space, rows: int, seed: int = 3) -> Any:
    """Draws random values: floats around 1 regardless of bounds, integers from the whole range."""
    rng = np.random.default_rng(seed)
    match space:
        case BoxSpace(shape=shape, dtype="float32"):
            return rng.normal(1, 2, (rows, *shape)).astype(np.float32)
        case BoxSpace(shape=shape, dtype=dtype):
            ends = (np.asarray(bound, np.int64) for bound in (space.low, space.high))
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
    """Returns values whose row k is filled with numbers[k], cast to the dtype of the space."""
    match space:
        case BoxSpace(shape=shape, dtype=dtype):
            column = numbers.reshape(-1, *(1 for _ in shape))
            return np.broadcast_to(column, (len(numbers), *shape)).astype(dtype)
        case MultiDiscreteSpace(nvec=nvec):
            return np.repeat(numbers[:, None], len(nvec), axis=1)
        case DictSpace(spaces=spaces):
            return {key: numbered(part, numbers) for key, part in spaces.items()}
    return numbers
