"""Action masks of Gymnasium environments, which become part of the observation.

An environment provides a mask in `info["action_mask"]`, as Taxi does, or in the part `action_mask`
of a Dict observation, as in PettingZoo and RLlib. The mask of a MultiDiscrete action is the
concatenation of the masks of its integers. The mask of a MultiBinary action has one number per bit:
whether the bit may be 1. Settings decide whether there are masks; masks in `info` are detected in
the trial of an environment (`env/gym.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from border_cli.core.raw_values import as_array, format_value
from border_cli.core.spaces import ACTION_MASK
from border_cli.env.config import GymConfig
from border_cli.env.gym_spaces import MaskedDict, may_have_masks
from border_cli.env.step_results import (
    TERMINATED,
    TRUNCATED,
    as_flag,
    unpack_reset,
    unpack_step,
)
from border_cli.errors import BadStep, ConfigError

Environment = gym.Env[Any, Any]


def choices_of(space: gym.Space[Any]) -> list[int]:
    """Returns the number of values of each integer of an action; empty if masks are impossible."""
    match space:
        case spaces.Discrete():
            return [int(space.n)]
        case spaces.MultiDiscrete():
            return [int(count) for count in space.nvec.ravel()]
        case spaces.MultiBinary():
            return [2] * int(np.prod(space.shape))
        case _:
            return []


class MaskReader:
    """Validates the masks of one action space. Raises `BadStep` for invalid masks."""

    def __init__(self, space: gym.Space[Any]) -> None:
        choices = choices_of(space)
        self.size = sum(choices)
        self._first = np.cumsum([0, *choices[:-1]])  # [A] where each integer starts in a mask
        self._is_binary = isinstance(space, spaces.MultiBinary)
        self.given = len(choices) if self._is_binary else self.size  # length of a mask from the env

    def __call__(self, mask: Any) -> NDArray[np.uint8]:
        """Returns 1 for each valid action. Every bit of a MultiBinary action may be 0. [size]"""
        parts = [as_array(part) for part in (mask if isinstance(mask, tuple) else (mask,))]
        arrays = [part.ravel() for part in parts if part is not None and part.dtype.kind in "biuf"]
        values = np.concatenate([np.empty(0, np.bool_), *arrays])
        valid = values == 1
        if len(arrays) < len(parts) or len(values) != self.given or values[~valid].any():
            expected = f"0 or 1 for each of {self.given} actions"
            raise BadStep(f"the {ACTION_MASK} must have {expected}, got {format_value(mask)}")
        if self._is_binary:
            valid = np.stack([np.ones_like(valid), valid], axis=1).ravel()
        return np.asarray(valid, np.uint8)

    def leaves_a_choice(self, mask: NDArray[np.uint8]) -> bool:
        """Returns whether every integer of the action has a valid value."""
        return bool(np.maximum.reduceat(mask, self._first).all())


def with_masks(env: Environment, config: GymConfig) -> Environment:
    """Moves masks into the observation, if the settings require masks or a part of the observation
    is a mask of the actions."""
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
            "masks need Discrete, MultiDiscrete or MultiBinary actions, and 0 or 1 for each"
        )
    return env  # the part is an ordinary observation


def _is_mask(space: gym.Space[Any], choices: int) -> bool:
    """Returns whether a part of an observation can be a mask of length `choices`."""
    numbers = isinstance(space, spaces.Box) and bool(
        (space.low == 0).all() and (space.high == 1).all()
    )
    return space.shape == (choices,) and (numbers or isinstance(space, spaces.MultiBinary))


class ActionMasks(gym.Wrapper[Any, Any, Any, Any]):
    """Moves the mask into the observation, uint8 [n], and checks it.

    A plain observation becomes the part `observation`. At the end of an episode, the mask may be
    missing or without a valid action. All actions count as valid then, because none is taken.
    """

    def __init__(self, env: Environment, read: MaskReader, limit: int | None) -> None:
        """`limit`: time limit in the settings, which truncates outside all wrappers."""
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
        observation, info = unpack_reset(self.env.reset(seed=seed, options=options))
        self._steps = 0
        return self._add_mask(observation, info, over=False), info

    def step(self, action: Any) -> Any:
        observation, reward, terminated, truncated, info = unpack_step(self.env.step(action))
        self._steps += 1
        ended = as_flag(TERMINATED, terminated) or as_flag(TRUNCATED, truncated)
        masked_obs = self._add_mask(observation, info, over=ended or self._steps == self._limit)
        return masked_obs, reward, terminated, truncated, info

    def _add_mask(self, observation: Any, info: Any, *, over: bool) -> Any:
        if not self._is_plain and not isinstance(observation, Mapping):
            return observation  # refused when it is read
        try:
            mask = self._read_mask(observation if self._by_key else info, over=over)
        except BadStep as error:
            raise error.within(f"step {self._steps} of an episode") from None
        return {**self._parts(observation), ACTION_MASK: mask}

    def _read_mask(self, holder: Any, *, over: bool) -> NDArray[np.uint8]:
        if isinstance(holder, Mapping) and ACTION_MASK in holder:
            mask = self._read(holder[ACTION_MASK])
            if self._read.leaves_a_choice(mask):
                return mask
        if over:
            return np.ones(self._read.size, np.uint8)
        where = "observation" if self._by_key else "info"
        raise BadStep(
            f"the {ACTION_MASK} in {where} is missing or leaves no action; env.action_mask=false "
            "ignores masks"
        )
