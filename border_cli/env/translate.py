"""Conversion of recorded observations and actions to rows and back, a whole episode at a time.

`core/raw_values.py` does the same step by step.
"""

from __future__ import annotations

from contextlib import closing
from typing import Any

import numpy as np
from numpy.typing import NDArray

from border_cli.core.raw_values import ValueConverter, batch_of, copy_values, make_converter
from border_cli.core.spaces import LeafSpace, Space
from border_cli.core.types import Array, leaves
from border_cli.env.config import GymConfig
from border_cli.env.construct import construct
from border_cli.env.gym_spaces import raw_observation, raw_space, raw_spaces


def spaces_of(observation: Any, action: Any, setting: str, name: str) -> tuple[Space, LeafSpace]:
    """Converts the spaces of a recording. Raises ConfigError with the setting if unsupported."""
    return raw_spaces(observation, action, name, setting).converted


def observation_rows(space: Any, recorded: Any) -> Array:
    """Converts the observations of an episode to rows. Raises `BadStep` if invalid. [T + 1, …]"""
    with np.errstate(over="ignore"):
        return copy_values(
            make_converter(raw_observation(space))(recorded, len(leaves(recorded)[0]))
        )


def action_rows(space: Any, recorded: Any) -> NDArray[Any]:
    """Converts the actions of an episode to rows. Raises `BadStep` if invalid. [T] or [T, A]"""
    with np.errstate(over="ignore"):
        return np.array(
            ValueConverter(raw_space(space), "the action")(recorded, len(recorded)), order="C"
        )


def recorded_rows(space: Any, rows: Array) -> Any:
    """Converts rows to values of a space, the inverse of `observation_rows` and `action_rows`."""
    if isinstance(rows, dict):
        return {key: batch_of(raw_space(part))(rows[key]) for key, part in space.spaces.items()}
    return batch_of(raw_space(space))(rows)


def raw_parts(config: GymConfig) -> tuple[Any, Any, Any]:
    """Returns Gymnasium's observation space, action space and spec of an environment."""
    with closing(construct(config)) as env:
        return env.observation_space, env.action_space, env.spec
