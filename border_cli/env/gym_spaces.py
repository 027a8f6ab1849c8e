"""Gymnasium's spaces in our terms."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from border_cli.core.spaces import (
    ACTION_MASK,
    LeafSpace,
    RawDict,
    RawObservation,
    RawSpace,
    Space,
    allocate,
    space_of,
)
from border_cli.core.types import Array
from border_cli.errors import ConfigError

KINDS = (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)
LEAVES = ", ".join(each.__name__ for each in KINDS)
FLATTEN = "; env.wrappers=[FlattenObservation] turns it into a Box"


class MaskedDict(spaces.Dict):
    """Observations whose `action_mask` says which actions are valid (`env/masks.py`)."""


def may_have_masks(space: gym.Space[Any]) -> bool:
    """Whether observations have a part of that name."""
    return isinstance(space, spaces.Dict) and ACTION_MASK in space.spaces


def raw_space(space: gym.Space[Any]) -> RawSpace:
    """A space of one of `LEAVES`, free of Gymnasium."""
    shape = space.shape or ()
    match space:
        case spaces.Box():
            low, high = space.low, space.high
        case spaces.Discrete():
            low, high = np.asarray(space.start), np.asarray(space.start + space.n - 1)
        case spaces.MultiDiscrete():
            low, high = space.start, space.start + space.nvec - 1
        case _:
            low, high = np.zeros(shape, np.int64), np.ones(shape, np.int64)
    kind = next(each.__name__ for each in KINDS if isinstance(space, each))
    return RawSpace(kind, shape, np.dtype(space.dtype).name, low, high, str(space))


def raw_observation(space: gym.Space[Any]) -> RawObservation:
    """An observation space that `observation_space` takes, free of Gymnasium."""
    if not isinstance(space, spaces.Dict):
        return raw_space(space)
    parts = {key: raw_space(part) for key, part in space.spaces.items()}
    return RawDict(parts, isinstance(space, MaskedDict))


def observation_space(space: gym.Space[Any], name: str, setting: str = "env.id") -> Space:
    """Our name for an observation space; an unsupported one is refused with its own name and that
    of the setting, and with a remedy where flattened it is numbers."""
    what = f"{setting}={name}: observation space"
    others = f" and Dict of these{FLATTEN if space.is_np_flattenable else ''}"
    if not isinstance(space, spaces.Dict) or not space.spaces:
        _refuse_others(space, f"{what} {space}", others)
    else:
        for key, part in space.spaces.items():
            _refuse_others(part, f"{what} {part} of key {key!r}", others)
    return space_of(raw_observation(space))


def action_space(space: gym.Space[Any], name: str, setting: str = "env.id") -> LeafSpace:
    """Our name for an action space; an unsupported one is refused with its own name."""
    _refuse_others(space, f"{setting}={name}: action space {space}")
    return raw_space(space).leaf


def _refuse_others(space: gym.Space[Any], what: str, others: str = "") -> None:
    if not isinstance(space, KINDS):
        raise ConfigError(f"{what} is not supported; supported: {LEAVES}{others}")


def allocator(space: Space, rows: int) -> Callable[[], Array]:
    """Makes uninitialised storage for `rows` values of the space, again and again.  [rows, …]"""
    first = allocate(space, rows)
    if not isinstance(first, dict):
        return partial(np.empty, first.shape, first.dtype)
    parts = [(key, array.shape, array.dtype) for key, array in first.items()]
    return lambda: {key: np.empty(shape, dtype) for key, shape, dtype in parts}
