"""Checks of the values that `reset` and `step` return: observations, rewards, flags and info.

Values are validated by `core/raw_values.py`, singly or in batches of N from a vector environment.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
from gymnasium import spaces

from border_cli.core.raw_values import ValueConverter, format_value
from border_cli.env.gym_spaces import raw_space
from border_cli.errors import BadStep

RESET: Final = "reset must return observation and info"
STEP: Final = "step must return observation, reward, terminated, truncated and info"

OLD_API: Final = (
    ", as before Gym 0.26; Shimmy converts it: pip install 'shimmy[gym-v21]', then "
    "env.id=GymV21Environment-v0 env.kwargs.env_id=ID"
)

_FLAG: Final = (bool, np.bool_)
_NUMBER: Final = (float, np.floating, int, np.integer)


REWARD: Final = ValueConverter(
    raw_space(spaces.Box(-np.inf, np.inf, (), np.float64)),
    "the reward",
    "is not a number",
    np.dtype(np.float64),  # rewards are summed before they are rounded to float32
)
TERMINATED, TRUNCATED = (
    ValueConverter(raw_space(spaces.Box(0, 1, (), np.bool_)), name, "is not true or false")
    for name in ("terminated", "truncated")
)


def as_reward(value: Any) -> float:
    """Converts a number, or an array with one number, to float."""
    return float(value if isinstance(value, _NUMBER) else REWARD(value))


def as_flag(check: ValueConverter, value: Any) -> bool:
    """Converts True, False, 0, 1, or an array with one of these, to bool."""
    return bool(value if isinstance(value, _FLAG) else check(value))


def info_values(info: Any, names: Sequence[str]) -> tuple[float, ...]:
    """Returns the numbers with these names in `info`, NaN if one is missing or not a number; () if
    all are missing."""
    if not isinstance(info, Mapping) or not any(name in info for name in names):
        return ()
    return tuple([_info_value(info.get(name)) for name in names])


def _info_value(value: Any) -> float:
    try:
        return as_reward(value)
    except BadStep:
        return math.nan


def other_answer(wanted: str, answer: object) -> BadStep:
    """Returns the error for a method that did not return the `wanted` values."""
    got = f"{len(answer)} values" if isinstance(answer, tuple) else format_value(answer)
    is_old = wanted == STEP and isinstance(answer, tuple) and len(answer) == 4
    return BadStep(f"{wanted}, got {got}{OLD_API if is_old else ''}")


def unpack_step(answer: Any) -> tuple[Any, Any, Any, Any, Any]:
    """Unpacks the five values returned by `step`."""
    try:
        observation, reward, terminated, truncated, info = answer
    except (TypeError, ValueError):
        raise other_answer(STEP, answer) from None
    return observation, reward, terminated, truncated, info


def unpack_reset(answer: Any) -> tuple[Any, Any]:
    """Unpacks the observation and `info` returned by `reset`."""
    try:
        observation, info = answer
    except (TypeError, ValueError):
        raise other_answer(RESET, answer) from None
    return observation, info
