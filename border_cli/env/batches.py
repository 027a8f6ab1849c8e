"""Observations and actions of N environments at once, as vector environments give and take them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from border_cli.core.types import Array
from border_cli.env.spaces import carried_dtype

# N observations of Gymnasium -> ours, always a copy: vector environments reuse their arrays.
BatchReader: TypeAlias = Callable[[Any], Array]
# [N] or [N, A] of a policy -> the same as N actions of Gymnasium, always a copy.
ActionBatcher: TypeAlias = Callable[[NDArray[Any]], NDArray[Any]]


def observation_batch(space: gym.Space[Any]) -> BatchReader:
    """How N observations of the single `space` become ours; integers are counted from 0."""
    if isinstance(space, spaces.Dict):
        parts = [(str(key), key, _leaf_batch(part)) for key, part in space.spaces.items()]
        return lambda values: {name: read(values[key]) for name, key, read in parts}
    return _leaf_batch(space)


def _leaf_batch(space: gym.Space[Any]) -> Callable[[Any], NDArray[Any]]:
    if isinstance(space, spaces.Box):
        dtype = carried_dtype(space)
        return lambda values: np.array(values, dtype, order="C")
    assert isinstance(space, spaces.Discrete | spaces.MultiDiscrete)
    start = np.ravel(space.start)  # [K]
    shape = () if isinstance(space, spaces.Discrete) else start.shape

    def read(values: Any) -> NDArray[Any]:
        counted: NDArray[np.int64] = np.asarray(values, np.int64).reshape(len(values), -1) - start
        return counted.reshape(len(values), *shape)  # from [N, K]

    return read


def action_batch(space: gym.Space[Any]) -> ActionBatcher:
    """How N actions of a policy become N of the single `space`."""
    shape, dtype = space.shape or (), space.dtype
    start: Any = 0
    if isinstance(space, spaces.Discrete | spaces.MultiDiscrete):
        start = space.start
    if not np.any(start):
        return lambda action: action.astype(dtype).reshape(len(action), *shape)
    return lambda action: (action.reshape(len(action), *shape) + start).astype(dtype)
