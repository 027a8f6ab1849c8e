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

from border_cli.core.raw_values import as_array, shown
from border_cli.core.spaces import ACTION_MASK
from border_cli.env.answers import (
    TERMINATED,
    TRUNCATED,
    as_flag,
    begun,
    stepped,
)
from border_cli.env.config import GymConfig
from border_cli.env.gym_spaces import MaskedDict, may_have_masks
from border_cli.errors import BadStep, ConfigError

Environment = gym.Env[Any, Any]


def choices_of(space: gym.Space[Any]) -> list[int]:
    """How many values each integer of an action has; none of those without masks."""
    match space:
        case spaces.Discrete():
            return [int(space.n)]
        case spaces.MultiDiscrete():
            return [int(each) for each in space.nvec.ravel()]
        case spaces.MultiBinary():
            return [2] * int(np.prod(space.shape))
        case _:
            return []


class MaskReader:
    """Accepts masks of one action space; raises `BadStep` for what is none."""

    def __init__(self, space: gym.Space[Any]) -> None:
        choices = choices_of(space)
        self.size = sum(choices)
        self._first = np.cumsum([0, *choices[:-1]])  # [A]  the number of each integer's 0
        self._is_binary = isinstance(space, spaces.MultiBinary)
        self.given = len(choices) if self._is_binary else self.size  # numbers of a mask

    def __call__(self, given: Any) -> NDArray[np.uint8]:
        """1 for a valid action; every bit of MultiBinary actions may be 0. [size]"""
        parts = [as_array(part) for part in (given if isinstance(given, tuple) else (given,))]
        arrays = [part.ravel() for part in parts if part is not None and part.dtype.kind in "biuf"]
        values = np.concatenate([np.empty(0, np.bool_), *arrays])
        valid = values == 1
        if len(arrays) < len(parts) or len(values) != self.given or values[~valid].any():
            expected = f"0 or 1 for each of {self.given} actions"
            raise BadStep(f"the {ACTION_MASK} must have {expected}, got {shown(given)}")
        if self._is_binary:
            valid = np.stack([np.ones_like(valid), valid], axis=1).ravel()
        return np.asarray(valid, np.uint8)

    def leaves_a_choice(self, mask: NDArray[np.uint8]) -> bool:
        """Whether any action is valid."""
        return bool(np.maximum.reduceat(mask, self._first).all())


def with_masks(env: Environment, config: GymConfig) -> Environment:
    """The environment with its masks in the observation, where the settings ask for them or its
    observation has a mask of its actions."""
    space = env.observation_space
    part = space[ACTION_MASK] if isinstance(space, spaces.Dict) and may_have_masks(space) else None
    if choices_of(env.action_space):
        read = MaskReader(env.action_space)
        if part is None or (_is_mask(part, read.given) and len(space) > 1):  # type: ignore[arg-type]
            return ActionMasks(env, read, config.max_episode_steps)
    if config.action_mask:
        raise ConfigError(
            f"env.action_mask must not be true: env.id={config.id} has the actions "
            f"{env.action_space} and {'no action mask' if part is None else f'a mask {part}'}; "
            "needed are Discrete, MultiDiscrete or MultiBinary actions, and 0 or 1 for each"
        )
    return env  # the part is one as any


def _is_mask(space: gym.Space[Any], choices: int) -> bool:
    """Whether a part of an observation can be a mask of so many actions."""
    numbers = isinstance(space, spaces.Box) and bool(
        (space.low == 0).all() and (space.high == 1).all()
    )
    return space.shape == (choices,) and (numbers or isinstance(space, spaces.MultiBinary))


class ActionMasks(gym.Wrapper[Any, Any, Any, Any]):
    """Moves the mask into the observation, uint8 [n], and checks it.

    A plain observation becomes the part `observation`. Where an episode ends there may be no valid
    action, or no mask: all count as valid then, because nobody acts there.
    """

    def __init__(self, env: Environment, read: MaskReader, limit: int | None) -> None:
        """`limit` is that of the settings, which truncates outside of all wrappers."""
        super().__init__(env)
        self._read, self._limit = read, limit
        self._by_key = may_have_masks(env.observation_space)
        self._is_plain = not isinstance(env.observation_space, spaces.Dict)
        parts = self._parts(env.observation_space)
        mask = spaces.Box(0, 1, (read.size,), np.uint8)
        self.observation_space = MaskedDict({**parts, ACTION_MASK: mask})
        self._steps = 0

    def _parts(self, observation: Any) -> Any:
        return {"observation": observation} if self._is_plain else observation

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        observation, info = begun(self.env.reset(seed=seed, options=options))
        self._steps = 0
        return self._masked(observation, info, over=False), info

    def step(self, action: Any) -> Any:
        observation, reward, terminated, truncated, info = stepped(self.env.step(action))
        self._steps += 1
        ended = as_flag(TERMINATED, terminated) or as_flag(TRUNCATED, truncated)
        seen = self._masked(observation, info, over=ended or self._steps == self._limit)
        return seen, reward, terminated, truncated, info

    def _masked(self, observation: Any, info: Any, *, over: bool) -> Any:
        if not self._is_plain and not isinstance(observation, Mapping):
            return observation  # refused by who reads it
        try:
            mask = self._mask(observation if self._by_key else info, over=over)
        except BadStep as error:
            raise error.within(f"step {self._steps} of an episode") from None
        return {**self._parts(observation), ACTION_MASK: mask}

    def _mask(self, holder: Any, *, over: bool) -> NDArray[np.uint8]:
        if isinstance(holder, Mapping) and ACTION_MASK in holder:
            mask = self._read(holder[ACTION_MASK])
            if self._read.leaves_a_choice(mask):
                return mask
        if over:
            return np.ones(self._read.size, np.uint8)
        where = "observation" if self._by_key else "info"
        raise BadStep(
            f"the {ACTION_MASK} in {where} is missing or leaves no action (env.action_mask=true)"
        )
