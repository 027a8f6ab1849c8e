"""Recorded observations and actions of Gymnasium as rows, and rows as they are recorded.

What `env/spaces.py` does step by step, for whole episodes at once.
"""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from border_cli.core.spaces import LeafSpace, Space
from border_cli.core.types import Array
from border_cli.env.config import GymConfig
from border_cli.env.construct import construct
from border_cli.env.spaces import action_space, carried_dtype, observation_space


def spaces_of(observation: Any, action: Any, name: str) -> tuple[Space, LeafSpace]:
    """Our names for the spaces of a recording; unsupported ones are refused."""
    return observation_space(observation, name), action_space(action, name)


def observation_rows(space: Any, recorded: Any) -> Array:
    """Observations of an episode as rows. [T + 1, …]"""
    if isinstance(space, spaces.Dict):
        return {str(key): _rows(part, recorded[key]) for key, part in space.spaces.items()}
    return _rows(space, recorded)


def action_rows(space: Any, recorded: Any) -> NDArray[Any]:
    """Actions of an episode as rows. [T] int64, or [T, A]"""
    return _rows(space, recorded)


def _rows(space: gym.Space[Any], recorded: Any) -> NDArray[Any]:
    array = np.asarray(recorded)
    match space:
        case spaces.Discrete():
            return array.astype(np.int64).reshape(len(array)) - int(space.start)
        case spaces.MultiDiscrete():
            flat = array.astype(np.int64).reshape(len(array), -1)
            return np.asarray(flat - space.start.ravel().astype(np.int64))
        case spaces.Box():
            with np.errstate(over="ignore"):
                return array.astype(carried_dtype(space)).reshape(len(array), *space.shape)
    raise AssertionError(f"{space} was refused before")


def recorded_rows(space: Any, rows: Array) -> Any:
    """Rows as a data set of this space holds them: what the two above undo."""
    if isinstance(space, spaces.Dict):
        assert isinstance(rows, dict)
        return {key: _recorded(part, rows[str(key)]) for key, part in space.spaces.items()}
    assert not isinstance(rows, dict)
    return _recorded(space, rows)


def _recorded(space: gym.Space[Any], rows: NDArray[Any]) -> NDArray[Any]:
    match space:
        case spaces.Discrete():
            return (rows + int(space.start)).astype(space.dtype)
        case spaces.MultiDiscrete():
            return (rows.reshape(len(rows), *space.shape) + space.start).astype(space.dtype)
    return rows.reshape(len(rows), *(space.shape or ())).astype(space.dtype)


def raw_parts(config: GymConfig) -> tuple[Any, Any, Any]:
    """Gymnasium's own observation space, action space and specification of an environment."""
    env = construct(config)
    try:
        return env.observation_space, env.action_space, env.spec
    finally:
        env.close()
