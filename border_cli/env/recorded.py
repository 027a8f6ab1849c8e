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
from border_cli.core.types import Array, leaves
from border_cli.env.answers import Values, observation_reader
from border_cli.env.config import GymConfig
from border_cli.env.construct import construct
from border_cli.env.spaces import action_space, observation_space


def spaces_of(observation: Any, action: Any, name: str) -> tuple[Space, LeafSpace]:
    """Our names for the spaces of a recording; unsupported ones are refused."""
    return observation_space(observation, name, remedy=""), action_space(action, name)


def observation_rows(space: Any, recorded: Any) -> Array:
    """Observations of an episode as rows; raises `BadStep` as for a played one. [T + 1, …]"""
    with np.errstate(over="ignore"):
        return observation_reader(space, _step)(recorded, len(leaves(recorded)[0]))


def action_rows(space: Any, recorded: Any) -> NDArray[Any]:
    """Actions of an episode as rows, within their bounds or not. [T] int64, or [T, A]"""
    with np.errstate(over="ignore"):
        return Values(space, "action", _step).unbounded_rows(recorded, len(recorded))


def _step(i: int, _: int) -> str:
    return f"step {i}"


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
