"""Action masks of Gymnasium environments, which become a part of the observation.

An environment tells which actions are valid by `info["action_mask"]`, as Taxi does, or by a part
`action_mask` of a Dict observation, as in PettingZoo and RLlib. Masks of MultiDiscrete actions are
those of its integers one behind the other; MultiBinary actions have a number for each bit, whether
it may be 1. Settings say whether there are masks; those in `info` are found as an environment is
tried (`env/gym.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from border_cli.core.spaces import ACTION_MASK
from border_cli.env.answers import (
    RESET,
    TERMINATED,
    TRUNCATED,
    as_array,
    as_flag,
    other_answer,
    shown,
    stepped,
)
from border_cli.env.config import GymConfig
from border_cli.env.gym_spaces import MaskedDict, may_have_masks
from border_cli.errors import BadStep, ConfigError

Environment = gym.Env[Any, Any]


def choices_of(space: gym.Space[Any]) -> int | None:
    """The length of a mask of these actions; None where there can be none."""
    match space:
        case spaces.Discrete():
            return int(space.n)
        case spaces.MultiDiscrete():
            return int(space.nvec.sum())
        case spaces.MultiBinary():
            return int(np.prod(space.shape))
        case _:
            return None


class MaskReader:
    """Accepts masks of one action space; raises `BadStep` for what is none."""

    def __init__(self, space: gym.Space[Any], choices: int) -> None:
        self._choices = choices
        self._is_binary = isinstance(space, spaces.MultiBinary)
        self.size = 2 * choices if self._is_binary else choices

    def __call__(self, given: Any) -> NDArray[np.uint8]:
        """1 for a valid action; every bit of MultiBinary actions may be 0. [size]"""
        parts = [as_array(part) for part in (given if isinstance(given, tuple) else (given,))]
        arrays = [part for part in parts if part is not None and part.dtype.kind in "biuf"]
        values = np.concatenate([part.ravel() for part in arrays]) if arrays else np.empty(0)
        valid = values == 1
        if len(arrays) != len(parts) or len(values) != self._choices or (values[~valid] != 0).any():
            what = f"must have 0 or 1 for each of {self._choices} actions"
            raise BadStep(f"the {ACTION_MASK} {what}, got {shown(given)}")
        if self._is_binary:
            valid = np.stack([np.ones_like(valid), valid], axis=1).ravel()
        return np.asarray(valid, np.uint8)


def reader_of(space: gym.Space[Any]) -> MaskReader:
    """The reader of the masks of these actions; raises `BadStep` where there can be none."""
    choices = choices_of(space)
    if choices is None:
        raise BadStep(f"{space} has no {ACTION_MASK}")
    return MaskReader(space, choices)


def with_masks(env: Environment, config: GymConfig) -> Environment:
    """The environment with its masks in the observation, where the settings ask for them or its
    observation has a mask of its actions."""
    space, choices = env.observation_space, choices_of(env.action_space)
    by_key = may_have_masks(space)
    if choices is not None and (not by_key or _is_mask(space[ACTION_MASK], choices)):  # type: ignore[index]
        return ActionMasks(env, MaskReader(env.action_space, choices), config.max_episode_steps)
    if not config.action_mask:
        return env  # a part of the observation as any
    of = f"of env.id={config.id}"
    if choices is None:
        raise ConfigError(
            f"env.action_mask must not be true without Discrete, MultiDiscrete or MultiBinary "
            f"actions; those {of} are {env.action_space}"
        )
    raise ConfigError(
        f"env.action_mask must not be true: the {ACTION_MASK} {of} is "
        f"{space[ACTION_MASK]}, no 0 or 1 for each of {choices} actions"  # type: ignore[index]
    )


def _is_mask(space: gym.Space[Any], choices: int) -> bool:
    """Whether a part of an observation can be a mask of so many actions."""
    if isinstance(space, spaces.MultiBinary):
        return space.shape == (choices,)
    if not isinstance(space, spaces.Box) or space.shape != (choices,):
        return False
    return bool((space.low == 0).all() and (space.high == 1).all())


class ActionMasks(gym.Wrapper[Any, Any, Any, Any]):
    """Moves the mask into the observation, uint8 [n], and checks it.

    A plain observation becomes the part `observation`. Where an episode ends there may be no valid
    action, or no mask: all count as valid then, because nobody acts there.
    """

    def __init__(self, env: Environment, read: MaskReader, limit: int | None) -> None:
        """`limit` is that of the settings, which truncates outside of all wrappers."""
        super().__init__(env)
        self._read, self._limit = read, limit
        self._all_valid = np.ones(read.size, np.uint8)
        self._by_key = may_have_masks(env.observation_space)
        self._is_plain = not isinstance(env.observation_space, spaces.Dict)
        parts = self._parts(env.observation_space)
        mask = spaces.Box(0, 1, (read.size,), np.uint8)
        self.observation_space = MaskedDict({**parts, ACTION_MASK: mask})
        self._steps = 0

    def _parts(self, observation: Any) -> Any:
        return {"observation": observation} if self._is_plain else observation

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        answer = self.env.reset(seed=seed, options=options)
        try:
            observation, info = answer
        except (TypeError, ValueError):
            raise other_answer(RESET, answer) from None
        self._steps = 0
        return self._masked(observation, info, over=False), info

    def step(self, action: Any) -> Any:
        observation, reward, terminated, truncated, info = stepped(self.env.step(action))
        self._steps += 1
        ended = as_flag(TERMINATED, terminated) or as_flag(TRUNCATED, truncated)
        seen = self._masked(observation, info, over=ended or self._steps == self._limit)
        return seen, reward, terminated, truncated, info

    def _masked(self, observation: Any, info: Any, *, over: bool) -> Any:
        holder = observation if self._by_key else info
        if not self._is_plain and not isinstance(observation, Mapping):
            return observation  # refused by who reads it
        if isinstance(holder, Mapping) and ACTION_MASK in holder:
            mask = self._checked(holder[ACTION_MASK], over=over)
        elif over:
            mask = self._all_valid
        else:
            where = "observation" if self._by_key else "info"
            raise BadStep(f"{self._place()}: {where} has no {ACTION_MASK} (env.action_mask)")
        return {**self._parts(observation), ACTION_MASK: mask}

    def _checked(self, given: Any, *, over: bool) -> NDArray[np.uint8]:
        try:
            mask = self._read(given)
        except BadStep as error:
            raise error.within(self._place()) from None
        if mask.any():
            return mask
        if not over:
            raise BadStep(f"{self._place()}: no action is valid, and the episode goes on")
        return self._all_valid

    def _place(self) -> str:
        return f"step {self._steps} of an episode"
