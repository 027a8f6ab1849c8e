"""Wrappers that fit an environment to what agents support: observations without unreadable parts,
actions without a Tuple, and rewards that are single numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.wrappers import FilterObservation

from border_cli.core.raw_values import as_array, format_value
from border_cli.env.config import GymConfig
from border_cli.env.gym_spaces import is_unreadable
from border_cli.errors import BadStep, ConfigError
from border_cli.words import unknown

Environment = gym.Env[Any, Any]


class KeptParts(FilterObservation):
    """A Dict observation without the parts that are ignored or unreadable."""

    def __init__(self, env: Environment, kept: Sequence[str]) -> None:
        assert isinstance(env.observation_space, spaces.Dict)
        self.left_out = tuple(key for key in env.observation_space if key not in kept)
        super().__init__(env, kept)


class WeightedReward(gym.RewardWrapper[Any, Any]):
    """The weighted sum of a vector reward."""

    def __init__(self, env: Environment, weights: Sequence[float]) -> None:
        super().__init__(env)
        self._weights = np.array(weights, np.float64)  # [k]

    def reward(self, reward: Any) -> float:
        values = as_array(reward)
        if values is None or values.shape != self._weights.shape:
            count = len(self._weights)
            raise BadStep(
                f"the reward must be {count} numbers, one for each of env.reward_weights, got "
                f"{format_value(reward)}"
            )
        return float(values @ self._weights)


class TupleAction(gym.ActionWrapper[Any, Any, Any]):
    """A MultiDiscrete action for a Tuple of Discrete actions."""

    def __init__(self, env: Environment, parts: Sequence[Any]) -> None:
        super().__init__(env)
        counts, starts = ([int(getattr(part, name)) for part in parts] for name in ("n", "start"))
        self.action_space = spaces.MultiDiscrete(counts, start=starts)

    def action(self, action: Any) -> tuple[int, ...]:
        return tuple(action.tolist())


def adapt(env: Environment, config: GymConfig) -> Environment:
    """Leaves out parts of the observation, joins a Tuple of actions, and sums a vector reward.
    Raises ConfigError for settings that do not fit the environment."""
    actions = env.action_space.spaces if isinstance(env.action_space, spaces.Tuple) else ()
    if actions and all(isinstance(part, spaces.Discrete) for part in actions):
        env = TupleAction(env, actions)
    kept = _kept_parts(env.observation_space, config)
    if kept:
        env = KeptParts(env, kept)
    if config.reward_weights is not None:
        return WeightedReward(env, config.reward_weights)
    rewards = getattr(env.unwrapped, "reward_space", None)  # as declared by MO-Gymnasium
    if isinstance(rewards, spaces.Box) and rewards.shape and not config.wrappers:
        raise ConfigError(
            f"env.reward_weights must have {rewards.shape[0]} numbers: the reward of "
            f"env.id={config.id} is a vector, and agents maximise their weighted sum; got null"
        )
    return env


def _kept_parts(space: Any, config: GymConfig) -> list[str]:
    """Returns the keys that remain of a Dict observation; empty if nothing is left out."""
    parts: dict[str, Any] = space.spaces if isinstance(space, spaces.Dict) else {}
    for key in config.ignore:
        if key not in parts:
            what = f"part of the observation of env.id={config.id}"
            raise ConfigError(f"env.ignore: {unknown(what, key, sorted(parts))}")
    kept = [
        key for key, part in parts.items() if key not in config.ignore and not is_unreadable(part)
    ]
    if config.ignore and not kept:
        raise ConfigError(f"env.ignore={config.ignore} leaves nothing of the observation {space}")
    return kept if len(kept) < len(parts) else []
