"""An environment's own vector implementation, if it does what the settings ask.

One that resets in the step after an end, as Gymnasium's own do, so that the last step of an episode
shows its true last observation. Most of its episodes have no seed of their own and cannot be
played again: evaluations and bit-reproducible runs take the loop of `gym_env.py`.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.envs import registration
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray

from border_cli.core.interfaces import Env
from border_cli.core.raw_values import batch_of, copied, observations
from border_cli.core.seeding import derived_seed
from border_cli.core.spaces import EnvSpec, has_masks
from border_cli.core.types import Array, Episode, Step
from border_cli.env.answers import (
    REWARD,
    TERMINATED,
    TRUNCATED,
    begun,
    info_values,
    stepped,
)
from border_cli.env.config import GymConfig
from border_cli.env.construct import construction, entry_of, missing_packages
from border_cli.env.gym_spaces import raw_spaces
from border_cli.errors import BadStep

Vector = gym.vector.VectorEnv[Any, Any, Any]


class NoVectorEnv(Exception):
    """The environment has no vector implementation that does what the settings ask; says why."""


def construct_vector(config: GymConfig, spec_of_single: Callable[[], EnvSpec]) -> Vector:
    """A new vector environment, not reset.

    Raises `NoVectorEnv` where nothing but stepping single environments gives what their spec, which
    may have to construct one, promises. Waits while another environment is constructed.
    """
    with construction(config):
        entry = copy.copy(entry_of(config))
        if entry.vector_entry_point is None:
            raise NoVectorEnv("there is none")
        if config.wrappers or entry.additional_wrappers:
            raise NoVectorEnv("wrappers apply to single environments only")
        spec = spec_of_single()
        if has_masks(spec.observation):
            raise NoVectorEnv("action masks are read from single environments only")
        if config.own_generators:
            raise NoVectorEnv("global generators are exchanged for single environments only")
        if spec.max_episode_steps is None and _own_limit(entry.vector_entry_point) is not None:
            raise NoVectorEnv("it truncates episodes, unlike a single environment")
        entry.max_episode_steps = spec.max_episode_steps
        kwargs = config.vector_arguments()
        try:
            env = gym.make_vec(entry, config.num_envs, "vector_entry_point", **kwargs)
        except TypeError as error:
            raise NoVectorEnv(f"it cannot be constructed: {error}") from error
        _check(env, spec)
        return env


def _own_limit(constructor: Any) -> Any:
    """The time limit that it has where none is given."""
    if isinstance(constructor, str):
        constructor = registration.load_env_creator(constructor)
    limit = inspect.signature(constructor).parameters.get("max_episode_steps")
    return None if limit is None else limit.default


def _check(env: Vector, spec: EnvSpec) -> None:
    """Raises where it differs from single environments."""
    mode = env.metadata.get("autoreset_mode")
    if mode != AutoresetMode.NEXT_STEP:
        raise NoVectorEnv(f"its autoreset mode is {mode}, not AutoresetMode.NEXT_STEP")
    ours = raw_spaces(env.single_observation_space, env.single_action_space, spec.id).ours
    # Compared as text: bounds are arrays.
    if str(ours) != str((spec.observation, spec.action)):
        raise NoVectorEnv(f"its spaces {ours} differ from a single environment's")


def _values_of(i: int, info: dict[str, Any], names: tuple[str, ...]) -> tuple[float, ...]:
    """The numbers of environment i in the `info` of all, where `_name` says which have one."""
    found = {
        name: info[name][i]
        for name in names
        if np.ndim(info.get(name, 0)) > 0 and info.get(f"_{name}", [True] * (i + 1))[i]
    }
    return info_values(found, names)


class GymVectorEnv(Env):
    """A vector environment for training; owns it until `close`. One thread calls it.

    Episodes have no seeds of their own here: one seed begins the N first ones, and the
    implementation draws those that follow.
    """

    def __init__(self, env: Vector, spec: EnvSpec, *, first: int) -> None:
        self.num_envs = env.num_envs
        self._env = env
        self._id = spec.id
        self._limit = spec.max_episode_steps
        self._info_metrics = spec.info_metrics
        self._first = first
        raw = raw_spaces(env.single_observation_space, env.single_action_space, spec.id)
        self._check = observations(raw.observation)
        self._returns_new = getattr(env.unwrapped, "returns_new_arrays", False) is True
        self._actions = batch_of(raw.action)

    def reset(self, seed: int) -> Array:
        """Starts N episodes, whatever ran before. [N, …]"""
        with missing_packages(f"env.id={self._id}"):
            # Below 2**31 by far: implementations count on from it and keep it in 32 bits with
            # a sign.
            answer = self._env.reset(seed=derived_seed(seed, self._first) >> 2)
        try:
            self._obs = self._rows(begun(answer)[0])  # [N, …]
        except BadStep as error:
            raise error.within(f"env.id={self._id}, at reset") from None
        self._moved: NDArray[np.bool_] | None = None  # [N]  in the coming step; None: all
        self._score = np.zeros(self.num_envs)  # [N] float64
        self._length = np.zeros(self.num_envs, np.int64)  # [N]
        return self._obs

    def step(self, action: NDArray[Any]) -> Step:
        """Acts once in each environment that moves; every array of the step is new."""
        obs, moved, count = self._obs, self._moved, self.num_envs
        answer = self._env.step(self._actions(action))
        try:
            observation, pay, has_terminated, was_cut, info = stepped(answer)
            self._obs = self._rows(observation)
            reward = np.array(REWARD(pay, count))  # [N] float64
            terminated = TERMINATED(has_terminated, count).copy()  # [N]
            truncated = TRUNCATED(was_cut, count).copy()  # [N]
        except BadStep as error:
            raise error.within(f"env.id={self._id}") from None
        if moved is not None:  # the others only began their next episode
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
            self._moved = ~ended  # they ignore one action while they reset
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
        """Raises where an episode goes on at the time limit."""
        if self._limit is not None and np.count_nonzero((self._length >= self._limit) & ~ended):
            raise BadStep(
                f"env.id={self._id}: its vector implementation does not end episodes at "
                f"max_episode_steps={self._limit}. Use env.vectorization=sync"
            )

    def _finish(self, ended: NDArray[np.bool_], info: dict[str, Any]) -> tuple[Episode, ...]:
        """The episodes that ended; the counts of the next ones begin at 0."""
        finished = np.flatnonzero(ended)
        metrics = [_values_of(i, info, self._info_metrics) for i in finished.tolist()]
        scores, lengths = self._score[finished].tolist(), self._length[finished].tolist()
        self._score[finished] = self._length[finished] = 0
        return tuple(map(Episode, scores, lengths, metrics))

    def _rows(self, observation: Any) -> Array:
        """Observations in memory of their own: most implementations use theirs again.  [N, …]"""
        checked = self._check(observation, self.num_envs)
        return checked if self._returns_new else copied(checked)

    def close(self) -> None:
        """Frees the environments; may be called twice."""
        self._env.close()
