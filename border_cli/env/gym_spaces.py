"""Gymnasium's spaces in our terms, and actions on their way to them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeAlias

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from border_cli.core.spaces import (
    ACTION_MASK,
    BoxSpace,
    DictSpace,
    DiscreteSpace,
    LeafSpace,
    MultiDiscreteSpace,
    Space,
    allocate,
)
from border_cli.core.types import Array
from border_cli.errors import ConfigError

LEAVES = "Box, Discrete, MultiDiscrete, MultiBinary"
FLATTEN = "; env.wrappers=[FlattenObservation] turns it into a Box"

# [N] or [N, A] of a policy -> N actions as the environments want them.
ActionReader: TypeAlias = Callable[[NDArray[Any]], Sequence[Any]]
# [N, …] rows -> one array of N values as a vector environment has them, always a copy.
Batcher: TypeAlias = Callable[[NDArray[Any]], NDArray[Any]]


class MaskedDict(spaces.Dict):
    """Observations whose `action_mask` says which actions are valid (`env/masks.py`)."""


def may_have_masks(space: gym.Space[Any]) -> bool:
    """Whether observations have a part of that name."""
    return isinstance(space, spaces.Dict) and ACTION_MASK in space.spaces


def observation_space(space: gym.Space[Any], name: str, setting: str = "env.id") -> Space:
    """Our name for an observation space; an unsupported one is refused with its own name and that
    of the setting, and with a remedy where flattened it is numbers."""
    what = f"{setting}={name}: observation space"
    others = f" and Dict of these{FLATTEN if space.is_np_flattenable else ''}"
    if not isinstance(space, spaces.Dict) or not space.spaces:
        return _leaf(space, f"{what} {space}", others)
    parts = {
        key: _leaf(part, f"{what} {part} of key {key!r}", others)
        for key, part in space.spaces.items()
    }
    return DictSpace(parts, masked=isinstance(space, MaskedDict))


def action_space(space: gym.Space[Any], name: str, setting: str = "env.id") -> LeafSpace:
    """Our name for an action space; an unsupported one is refused with its own name."""
    return _leaf(space, f"{setting}={name}: action space {space}")


def _leaf(space: gym.Space[Any], what: str, others: str = "") -> LeafSpace:
    match space:
        case spaces.Box():
            dtype = carried_dtype(space)
            with np.errstate(over="ignore"):  # a bound beyond float32 is no bound: infinity
                low, high = space.low.astype(dtype), space.high.astype(dtype)
            return BoxSpace(space.shape, dtype.name, low, high)
        case spaces.Discrete():
            return DiscreteSpace(int(space.n))
        case spaces.MultiDiscrete():
            return MultiDiscreteSpace(tuple(int(n) for n in space.nvec.ravel()))
        case spaces.MultiBinary():
            return MultiDiscreteSpace((2,) * math.prod(space.shape))
        case _:
            raise ConfigError(f"{what} is not supported; supported: {LEAVES}{others}")


def carried_dtype(space: spaces.Box) -> np.dtype[Any]:
    """Networks compute in float32, so nothing wider is carried; pixels stay uint8."""
    wide = space.dtype in (np.dtype(np.float64), np.dtype(np.longdouble))
    return np.dtype(np.float32) if wide else np.dtype(space.dtype)


def allocator(space: Space, rows: int) -> Callable[[], Array]:
    """Makes uninitialised storage for `rows` values of the space, again and again.  [rows, …]"""
    first = allocate(space, rows)
    if not isinstance(first, dict):
        return partial(np.empty, first.shape, first.dtype)
    parts = [(key, array.shape, array.dtype) for key, array in first.items()]
    return lambda: {key: np.empty(shape, dtype) for key, shape, dtype in parts}


def action_reader(space: gym.Space[Any]) -> ActionReader:
    """How actions of a policy become those of `space`; always copies, for envs may write there."""
    if isinstance(space, spaces.Discrete):
        first = int(space.start)
        if first == 0:
            return np.ndarray.tolist
        return lambda action: (action + first).tolist()
    batch = batch_of(space)
    return lambda action: list(batch(action))


def batch_of(space: gym.Space[Any]) -> Batcher:
    """How N rows become N values of the single `space`."""
    shape, dtype = space.shape or (), space.dtype
    start: Any = 0
    if isinstance(space, spaces.Discrete | spaces.MultiDiscrete):
        start = space.start
    if not np.any(start):
        return lambda rows: rows.astype(dtype).reshape(len(rows), *shape)
    return lambda rows: (rows.reshape(len(rows), *shape) + start).astype(dtype)
