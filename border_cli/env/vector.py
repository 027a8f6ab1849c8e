"""An environment's own vector implementation, if it supports the settings.

It must reset in the step after an end, as Gymnasium's own do, so that the last step of an episode
returns its true last observation. Most of its episodes have no separate seed and cannot be
replayed, so evaluations use the loop in `gym_env.py`, and so do bit-reproducible runs unless
`env.exact_resume=false`.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Mapping
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.envs import registration
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray

from border_cli.core.interfaces import Env
from border_cli.core.raw_values import batch_of, copy_values, make_converter
from border_cli.core.seeding import derived_seed
from border_cli.core.spaces import EnvSpec, RawSpaces, has_masks
from border_cli.core.types import Array, Beat, Episode, State, Step
from border_cli.env.config import GymConfig
from border_cli.env.construct import construction, entry_of, missing_packages
from border_cli.env.gym_spaces import raw_spaces
from border_cli.env.step_results import (
    REWARD,
    TERMINATED,
    TRUNCATED,
    info_values,
    unpack_reset,
    unpack_step,
)
from border_cli.errors import BadStep, ConfigError

Vector = gym.vector.VectorEnv[Any, Any, Any]


class NoVectorEnv(Exception):
    """The environment has no vector implementation that supports the settings."""


def construct_vector(config: GymConfig, spec_of_single: Callable[[], EnvSpec]) -> Vector:
    """Constructs a vector environment, without a reset. One thread at a time.

    Raises `NoVectorEnv` if it would differ from single environments. `spec_of_single` returns their
    spec, and may construct one.
    """
    with construction(config):
        entry = copy.copy(entry_of(config))
        if entry.vector_entry_point is None:
            raise NoVectorEnv("there is none")
        adapted = config.wrappers or config.ignore or config.reward_weights or config.changes_images
        if adapted or config.frame_skip > 1 or entry.additional_wrappers:
            raise NoVectorEnv("wrappers apply to single environments only")
        spec = spec_of_single()
        if has_masks(spec.observation):
            raise NoVectorEnv("action masks are read from single environments only")
        if config.own_generators:
            raise NoVectorEnv("global generators are swapped for single environments only")
        if spec.max_episode_steps is None and _default_limit(entry.vector_entry_point) is not None:
            raise NoVectorEnv("it truncates episodes, unlike a single environment")
        entry.max_episode_steps = spec.max_episode_steps
        kwargs = config.vector_arguments()
        try:
            env = gym.make_vec(entry, config.num_envs, "vector_entry_point", **kwargs)
        except TypeError as error:
            raise NoVectorEnv(f"it cannot be constructed: {error}") from error
        _check_equal(env, spec)
        return env


def _default_limit(constructor: Any) -> Any:
    """Returns the default time limit of a constructor."""
    if isinstance(constructor, str):
        constructor = registration.load_env_creator(constructor)
    limit = inspect.signature(constructor).parameters.get("max_episode_steps")
    return None if limit is None else limit.default


def _check_equal(env: Vector, spec: EnvSpec) -> None:
    """Raises `NoVectorEnv` if a vector environment differs from single environments."""
    mode = env.metadata.get("autoreset_mode")
    if mode != AutoresetMode.NEXT_STEP:
        raise NoVectorEnv(f"its autoreset mode is {mode}, not AutoresetMode.NEXT_STEP")
    try:
        ours = raw_spaces(env.single_observation_space, env.single_action_space, spec.id).converted
    except ConfigError as error:
        raise NoVectorEnv(f"it is not adapted like a single environment: {error}") from error
    # Compared as strings, because bounds are arrays.
    if str(ours) != str((spec.observation, spec.action)):
        raise NoVectorEnv(f"its spaces {ours} differ from a single environment's")


def _values_of(i: int, info: dict[str, Any], names: tuple[str, ...]) -> tuple[float, ...]:
    """Returns the values of environment i in the common `info`. A mask `_name` in `info` marks the
    environments that have a value."""
    values = {
        name: info[name][i]
        for name in names
        if np.ndim(info.get(name, 0)) > 0 and info.get(f"_{name}", [True] * (i + 1))[i]
    }
    return info_values(values, names)


class GymVectorEnv(Env):
    """A vector environment for training; owns it until `close`. Used by one thread.

    Episodes have no separate seeds: one seed determines the first N episodes, and the
    implementation draws the seeds of later ones.
    """

    def __init__(
        self, env: Vector, spec: EnvSpec, *, first: int, raw: RawSpaces | None = None
    ) -> None:
        """`raw` are the spaces of a single environment, if they replace those of `env`."""
        self.num_envs = env.num_envs
        self._env = env
        self._id = spec.id
        self._limit = spec.max_episode_steps
        self._info_metrics = spec.info_metrics
        self._first = first
        self._resumes = 0  # resumes so far, each with new episodes
        if raw is None:
            raw = raw_spaces(env.single_observation_space, env.single_action_space, spec.id)
        self._check = make_converter(raw.observation)
        self._returns_new = getattr(env.unwrapped, "returns_new_arrays", False) is True
        self._actions = batch_of(raw.action)

    def reset(self, seed: int) -> Array:
        """Starts N new episodes and returns their first observations. [N, …]"""
        with missing_packages(f"env.id={self._id}"):
            # Far below 2**31: implementations count up from the seed and store it as a signed
            # 32-bit integer.
            answer = self._env.reset(seed=derived_seed(seed, self._first) >> 2)
        try:
            self._obs = self._copy_rows(unpack_reset(answer)[0])  # [N, …]
        except BadStep as error:
            raise error.within(f"env.id={self._id}, at reset") from None
        self._moved: NDArray[np.bool_] | None = None  # [N] which envs act next; None for all
        self._score = np.zeros(self.num_envs)  # [N] float64
        self._length = np.zeros(self.num_envs, np.int64)  # [N]
        return self._obs

    def state_dict(self) -> State:
        """Returns the number of resumes, from which `resume` derives an unused seed."""
        return {"resumes": self._resumes}

    def resume(
        self, seed: int, state: Mapping[str, Any], beat: Beat = lambda: None
    ) -> tuple[Array, list[int]]:
        del beat
        self._resumes = int(state.get("resumes", 0)) + 1
        return self.reset(derived_seed(seed, self._resumes)), list(range(self.num_envs))

    def step(self, action: NDArray[Any]) -> Step:
        """Acts once in each environment that does not reset. All arrays of the step are new."""
        obs, moved, count = self._obs, self._moved, self.num_envs
        result = self._env.step(self._actions(action))
        try:
            observation, raw_reward, raw_terminated, raw_truncated, info = unpack_step(result)
            self._obs = self._copy_rows(observation)
            reward = np.array(REWARD(raw_reward, count))  # [N] float64
            terminated = TERMINATED(raw_terminated, count).copy()  # [N]
            truncated = TRUNCATED(raw_truncated, count).copy()  # [N]
        except BadStep as error:
            raise error.within(f"env.id={self._id}") from None
        if moved is not None:  # the other environments were merely reset
            reward[~moved] = 0
            terminated &= moved
            truncated &= moved
        self._score += reward
        self._length += 1 if moved is None else moved
        ended = terminated | truncated  # [N]
        self._refuse_longer(ended)
        episodes: tuple[Episode, ...] = ()
        self._moved = None
        if np.count_nonzero(ended):
            episodes = self._finish(ended, info)
            self._moved = ~ended  # an environment that ended spends the next step on its reset
        return Step(
            obs=obs,
            action=action,
            reward=reward.astype(np.float32),
            terminated=terminated,
            truncated=truncated,
            next_obs=self._obs,
            act_obs=self._obs,
            episodes=episodes,
            moved=moved,
        )

    def _refuse_longer(self, ended: NDArray[np.bool_]) -> None:
        """Raises `BadStep` if an episode continues after the time limit."""
        if self._limit is not None and np.count_nonzero((self._length >= self._limit) & ~ended):
            raise BadStep(
                f"env.id={self._id}: its vector implementation does not end episodes at "
                f"max_episode_steps={self._limit}. Use env.vectorization=sync"
            )

    def _finish(self, ended: NDArray[np.bool_], info: dict[str, Any]) -> tuple[Episode, ...]:
        """Returns the episodes that ended, and resets their returns and lengths."""
        finished = np.flatnonzero(ended)
        metrics = [_values_of(i, info, self._info_metrics) for i in finished.tolist()]
        scores, lengths = self._score[finished].tolist(), self._length[finished].tolist()
        self._score[finished] = self._length[finished] = 0
        return tuple(map(Episode, scores, lengths, metrics))

    def _copy_rows(self, observation: Any) -> Array:
        """Checks and copies observations: most implementations reuse their arrays. [N, …]"""
        checked = self._check(observation, self.num_envs)
        return checked if self._returns_new else copy_values(checked)

    def close(self) -> None:
        """Closes the environments. Can be called more than once."""
        self._env.close()
