"""Goal rewards of Gymnasium environments with the interface of `gymnasium_robotics.GoalEnv`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from border_cli.core.interfaces import GoalRewards
from border_cli.core.raw_values import ValueConverter, format_value
from border_cli.core.spaces import GOALS, DictSpace, EnvSpec
from border_cli.env.gym_spaces import raw_space
from border_cli.errors import BadStep, ConfigError

REWARDS = ValueConverter(
    raw_space(gym.spaces.Box(-np.inf, np.inf, (), np.float64)),
    "compute_reward's result",
    "is not one number for each pair of goals, computed along their last axis",
    np.dtype(np.float64),
)
TRIED = 3  # number of goals in the trial call before a run


def refuse_no_goals(spec: EnvSpec) -> None:
    """Raises ConfigError if observations have no goals for `compute_reward`."""
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
    """Goal rewards by `compute_reward` and `compute_terminated` of an environment; owns it.

    The environment is never stepped. `info` is empty, and goals have the dtype of their space.
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
        """Returns the outermost method of that name, which accepts goals as agents observe them."""
        if not self._env.has_wrapper_attr(name):
            return None
        method: Callable[..., Any] = self._env.get_wrapper_attr(name)
        return method

    def _try(self) -> None:
        """Calls both methods with the goals of a first episode, to check the shapes of results."""
        obs, _ = self._env.reset(seed=0)
        achieved, desired = (np.stack([np.asarray(obs[name])] * TRIED) for name in GOALS)
        self.rewards(achieved, desired)
        self.terminated(achieved, desired)

    def rewards(self, achieved: NDArray[Any], desired: NDArray[Any]) -> NDArray[np.float32]:
        """Returns the rewards of M pairs of goals. [M]"""
        result = self._reward(self._typed(achieved), self._typed(desired), {})
        try:
            values = REWARDS(result, len(achieved))
        except BadStep as error:
            raise error.within(f"env.id={self._id}") from None
        with np.errstate(over="ignore"):  # infinite values are refused below
            rewards = values.astype(np.float32)
        if not np.isfinite(rewards).all():
            raise BadStep(
                f"env.id={self._id}: compute_reward returned {format_value(result)}: not finite"
            )
        return rewards

    def terminated(self, achieved: NDArray[Any], desired: NDArray[Any]) -> NDArray[np.bool_] | None:
        """Returns whether M pairs of goals end an episode [M]; None without `compute_terminated`,
        which is called once per pair if it does not return M flags."""
        method = self._terminated
        if method is None:
            return None
        achieved, desired = self._typed(achieved), self._typed(desired)
        flags = np.asarray(method(achieved, desired, {}), np.bool_)
        if flags.shape == (len(achieved),):
            return flags
        ends = [bool(method(*pair, {})) for pair in zip(achieved, desired, strict=True)]
        return np.array(ends, np.bool_)

    def _typed(self, goals: NDArray[Any]) -> NDArray[Any]:
        return goals if self._dtype is None else goals.astype(self._dtype, copy=False)

    def close(self) -> None:
        self._env.close()
