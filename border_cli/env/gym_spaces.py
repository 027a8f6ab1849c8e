"""Conversion of Gymnasium's spaces to ours."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from border_cli.core.spaces import (
    ACTION_MASK,
    RawDict,
    RawObservation,
    RawSpace,
    RawSpaces,
    Space,
    allocate,
)
from border_cli.core.types import Array
from border_cli.errors import ConfigError

LEAVES = "Box, Discrete, MultiDiscrete, MultiBinary"
ENV_ID = "env.id"  # setting that chooses an environment, for messages
FLATTEN = "; env.wrappers=[FlattenObservation] turns it into a Box"
OWN_WRAPPER = "; a wrapper of your own can turn it into one: env.wrappers=[module:Class]"


class MaskedDict(spaces.Dict):
    """Observations with a part `action_mask` that marks the valid actions (`env/masks.py`)."""


def may_have_masks(space: gym.Space[Any]) -> bool:
    """Returns whether observations have a part `action_mask`."""
    return isinstance(space, spaces.Dict) and ACTION_MASK in space.spaces


def raw_space(space: gym.Space[Any], what: str = "", others: str = "") -> RawSpace:
    """Converts a space of a kind in `LEAVES`. Raises ConfigError for other spaces, named `what`."""
    shape = getattr(space, "shape", None) or ()
    low: Any
    match space:
        case spaces.Box():
            kind, low, high = "Box", space.low, space.high
        case spaces.Discrete():
            kind, low = "Discrete", np.asarray(space.start)
            high = np.asarray(space.start + space.n - 1)
        case spaces.MultiDiscrete():
            kind, low, high = "MultiDiscrete", space.start, space.start + space.nvec - 1
        case spaces.MultiBinary():
            kind, low, high = "MultiBinary", np.zeros(shape, np.int64), np.ones(shape, np.int64)
        case _:
            raise ConfigError(f"{what} is not supported; supported: {LEAVES}{others}")
    return RawSpace(kind, shape, np.dtype(space.dtype).name, low, high, str(space))


def is_unreadable(space: Any) -> bool:
    """Returns whether no network can read a part of a Dict observation, even if flattened: text,
    graphs, sequences, and spaces of users that Gymnasium cannot flatten."""
    return isinstance(space, spaces.Text) or not _can_flatten(space)


def _suggest_wrapper(space: Any, setting: str) -> str:
    """Suggests a wrapper that turns an unsupported observation space into a supported one."""
    if _can_flatten(space):
        return FLATTEN
    if setting != ENV_ID:  # data sets are read without wrappers
        return ""
    return OWN_WRAPPER


def _can_flatten(space: Any) -> bool:
    """Returns whether Gymnasium can flatten values of a space. False if a user's space does not
    define it."""
    try:
        return bool(space.is_np_flattenable)
    except (AttributeError, NotImplementedError):
        return False


def raw_observation(space: Any, name: str = "", setting: str = ENV_ID) -> RawObservation:
    """Converts an observation space. Raises ConfigError for an unsupported one, with the setting
    and a suggestion."""
    what = f"{setting}={name}: observation space"
    others = f" and Dict of these{_suggest_wrapper(space, setting)}"
    if not isinstance(space, spaces.Dict) or not space.spaces:
        return raw_space(space, f"{what} {space}", others)
    parts = {
        key: raw_space(part, f"{what} {part} of key {key!r}", others)
        for key, part in space.spaces.items()
    }
    return RawDict(parts, isinstance(space, MaskedDict))


def raw_spaces(observation: Any, action: Any, name: str, setting: str = ENV_ID) -> RawSpaces:
    """Converts both spaces of an environment. Raises ConfigError for unsupported ones."""
    what = f"{setting}={name}: action space {action}"
    return RawSpaces(raw_observation(observation, name, setting), raw_space(action, what))


def allocator(space: Space, rows: int) -> Callable[[], Array]:
    """Returns a function that allocates an uninitialised array for `rows` values. [rows, …]"""
    first = allocate(space, rows)
    if not isinstance(first, dict):
        return partial(np.empty, first.shape, first.dtype)
    parts = [(key, array.shape, array.dtype) for key, array in first.items()]
    return lambda: {key: np.empty(shape, dtype) for key, shape, dtype in parts}
