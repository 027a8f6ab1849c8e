"""Rewards of Gymnasium environments with goals, as `gymnasium_robotics.GoalEnv` defines them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from border_cli.core.interfaces import GoalRewards
from border_cli.core.raw_values import Values, shown
from border_cli.core.spaces import DictSpace, EnvSpec
from border_cli.env.gym_spaces import raw_space
from border_cli.errors import BadStep, ConfigError

REWARDS = Values(
    raw_space(gym.spaces.Box(-np.inf, np.inf, (), np.float64)),
    "compute_reward's answer",
    "is not one number for each pair of goals, computed along their last axis",
    np.dtype(np.float64),
)
GOALS = ("achieved_goal", "desired_goal")
TRIED = 3  # goals at once in the check before a run: none of the goals' own axes


def refuse_no_goals(spec: EnvSpec) -> None:
    """Raises ConfigError where observations have no goals that `compute_reward` could take."""
    space = spec.observation
    parts = space.spaces if isinstance(space, DictSpace) else {}
    missing = [name for name in GOALS if name not in parts]
    if missing:
        raise ConfigError(
            f"replay_buffer=hindsight needs Dict observations with {' and '.join(GOALS)}, but "
            f"those of env.id={spec.id} have no {' and no '.join(missing)}. Use "
            "replay_buffer=uniform, or an environment with goals such as env=fetch_reach"
        )


class GymGoalRewards(GoalRewards):
    """`compute_reward` and `compute_terminated` of an environment that is never stepped; owns it.

    They are called with an empty `info`, and with goals of the type that their space has.
    """

    def __init__(self, env: gym.Env[Any, Any], env_id: str) -> None:
        self._env = env
        self._id = env_id
        reward = self._method("compute_reward")
        if reward is None:
            raise ConfigError(
                f"replay_buffer=hindsight needs an environment with compute_reward("
                f"achieved_goal, desired_goal, info), and env.id={env_id} has none. Add it, or "
                "use replay_buffer=uniform"
            )
        self._reward, self._terminated = reward, self._method("compute_terminated")
        assert isinstance(env.observation_space, gym.spaces.Dict), "refuse_no_goals() is first"
        self._dtype = env.observation_space["desired_goal"].dtype
        self._try()

    def _method(self, name: str) -> Callable[..., Any] | None:
        """The outermost one, which takes the goals that agents see."""
        if not self._env.has_wrapper_attr(name):
            return None
        method: Callable[..., Any] = self._env.get_wrapper_attr(name)
        return method

    def _try(self) -> None:
        """Calls both with the goals of a first episode; refuses what is not one reward per row."""
        obs, _ = self._env.reset(seed=0)
        achieved, desired = (np.stack([np.asarray(obs[name])] * TRIED) for name in GOALS)
        self.rewards(achieved, desired)
        self.terminated(achieved, desired)

    def rewards(self, achieved: NDArray[Any], desired: NDArray[Any]) -> NDArray[np.float32]:
        """Of M pairs of goals. [M]"""
        given = self._reward(self._typed(achieved), self._typed(desired), {})
        try:
            found = REWARDS(given, len(achieved))
        except BadStep as error:
            raise error.within(f"env.id={self._id}") from None
        with np.errstate(over="ignore"):  # what becomes infinite is refused
            rewards = found.astype(np.float32)
        if not np.isfinite(rewards).all():
            raise BadStep(f"env.id={self._id}: compute_reward returned {shown(given)}: not finite")
        return rewards

    def terminated(self, achieved: NDArray[Any], desired: NDArray[Any]) -> NDArray[np.bool_] | None:
        """Of M pairs of goals. [M]; one by one where `compute_terminated` takes only one pair."""
        method = self._terminated
        if method is None:
            return None
        achieved, desired = self._typed(achieved), self._typed(desired)
        found = np.asarray(method(achieved, desired, {}), np.bool_)
        if found.shape == (len(achieved),):
            return found
        ends = [bool(method(*each, {})) for each in zip(achieved, desired, strict=True)]
        return np.array(ends, np.bool_)

    def _typed(self, goals: NDArray[Any]) -> NDArray[Any]:
        return goals if self._dtype is None else goals.astype(self._dtype, copy=False)

    def close(self) -> None:
        self._env.close()
