"""Environments of Gymnasium, N of them stepped in one loop.

Not Gymnasium's own vector environment: every episode has a seed of its own here, and an episode
that ends is followed by the next one within the same step.
"""

from __future__ import annotations

import logging
from contextlib import ExitStack
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from border_cli.core.interfaces import Env, EnvFactory
from border_cli.core.seeding import derived_seed
from border_cli.core.spaces import EnvSpec, allocate
from border_cli.core.types import Array, Episode, Step, map_array
from border_cli.env.config import GymConfig
from border_cli.env.construct import construct, missing_packages, time_limit
from border_cli.env.spaces import (
    action_reader,
    action_space,
    check_shape,
    observation_space,
    observation_writer,
)

log = logging.getLogger(__name__)


class GymEnvFactory(EnvFactory):
    """A recipe for `GymEnv`; holds settings only, and the spec once it was asked for."""

    def __init__(self, config: GymConfig) -> None:
        self.config = config
        self._spec: EnvSpec | None = None

    @property
    def spec(self) -> EnvSpec:
        """Spaces and time limit; the first call constructs one environment and closes it."""
        if self._spec is None:
            self._spec = self._read_spec()
        return self._spec

    def make(self, *, training: bool, render: str | None = None, first: int = 0) -> GymEnv:
        """A fresh environment of `num_envs`. `render="human"` opens the window of the first."""
        return GymEnv(self.config, training=training, render=render, first=first)

    def translator(self) -> GymTranslator:
        """For callers that step an environment of their own; constructs one to read its spaces."""
        env = construct(self.config)
        try:
            return GymTranslator(env.observation_space, env.action_space, str(self.config.id))
        finally:
            env.close()

    def _read_spec(self) -> EnvSpec:
        env = construct(self.config)
        try:
            env_id = str(self.config.id)
            return EnvSpec(
                id=env_id,
                observation=observation_space(env.observation_space, env_id),
                action=action_space(env.action_space, env_id),
                max_episode_steps=time_limit(self.config, env),
            )
        finally:
            env.close()


class GymTranslator:
    """Between raw observations and actions of Gymnasium and the rows of a policy."""

    def __init__(self, observation: gym.Space[Any], action: gym.Space[Any], env_id: str) -> None:
        self._raw = observation
        self._id = env_id
        self._space = observation_space(observation, env_id)
        self._write = observation_writer(observation)
        self._read = action_reader(action)

    def observation(self, observation: Any) -> Array:
        """One raw observation as one row.  [1, …]"""
        check_shape(self._raw, observation, self._id)
        row = allocate(self._space, 1)
        self._write(row, 0, observation)
        return row

    def action(self, action: NDArray[Any]) -> Any:
        """One row of actions as the environment's `step` wants it."""
        return self._read(action)[0]


class GymEnv(Env):
    """N environments of one id; owns them until `close`. One thread calls it."""

    def __init__(
        self, config: GymConfig, *, training: bool, render: str | None = None, first: int = 0
    ) -> None:
        self.num_envs = config.num_envs
        self._first = first
        self._id = str(config.id)
        self._training = training
        self._limit = config.max_episode_steps
        self._envs: list[Any] = []
        try:
            for i in range(config.num_envs):
                # A process has one window at most: pygame draws all environments into the same.
                self._envs.append(construct(config, render if i == 0 else None))
            observation, action = self._envs[0].observation_space, self._envs[0].action_space
            self._space = observation_space(observation, self._id)
            action_space(action, self._id)
        except BaseException:
            self._abandon()
            raise
        self._write = observation_writer(observation)
        self._read = action_reader(action)
        self._forget()

    def _forget(self) -> None:
        self._obs: Array = allocate(self._space, self.num_envs)  # [N, …]
        self._live = list(range(self.num_envs))  # those that still move
        self._episode = [0] * self.num_envs  # how many of this seed have begun, less one
        self._score = [0.0] * self.num_envs
        self._length = [0] * self.num_envs

    def reset(self, seed: int) -> Array:
        """Starts N episodes, whatever ran before. [N, …]"""
        self._forget()
        self._seed = seed
        try:
            with missing_packages(f"env.id={self._id}"):  # windows open with the first reset
                for i in range(self.num_envs):
                    self._begin(i, self._obs)
        except BaseException:
            self._abandon()
            raise
        return self._obs

    def step(self, action: NDArray[Any]) -> Step:
        """Acts once in each environment that still moves; every array of the step is new."""
        envs, write, limit = self._envs, self._write, self._limit
        scores, lengths = self._score, self._length
        obs = self._obs
        next_obs = self._fresh()  # [N, …]
        reward = np.zeros(self.num_envs, np.float32)  # [N]
        terminated = np.zeros(self.num_envs, np.bool_)  # [N]
        truncated = np.zeros(self.num_envs, np.bool_)  # [N]
        ended = []

        actions = self._read(action)
        for i in self._live:
            observation, r, has_terminated, was_cut, _ = envs[i].step(actions[i])
            write(next_obs, i, observation)
            reward[i] = r
            scores[i] += float(r)
            lengths[i] += 1
            if has_terminated or was_cut or lengths[i] == limit:
                terminated[i] = has_terminated
                truncated[i] = was_cut or lengths[i] == limit
                ended.append(i)

        episodes = tuple(Episode(scores[i], lengths[i]) for i in ended) if ended else ()
        self._obs = self._after(ended, next_obs) if ended else next_obs
        return Step(
            obs=obs,
            action=action,
            reward=reward,
            terminated=terminated,
            truncated=truncated,
            next_obs=next_obs,
            act_obs=self._obs,
            episodes=episodes,
        )

    def _fresh(self) -> Array:
        """Storage for the next observations; those that lie still repeat their last one."""
        if len(self._live) == self.num_envs:
            return allocate(self._space, self.num_envs)
        return map_array(np.copy, self._obs)

    def _after(self, ended: list[int], next_obs: Array) -> Array:
        """What to act on once the environments `ended` have come to an end.  [N, …]"""
        if not self._training:
            self._live = [i for i in self._live if i not in ended]
            return next_obs
        act_obs = map_array(np.copy, next_obs)
        for i in ended:
            self._episode[i] += 1
            self._begin(i, act_obs)
        return act_obs

    def _begin(self, i: int, obs: Array) -> None:
        """Starts the next episode of environment i and writes its first observation into `obs`."""
        env = self._envs[i]
        observation, _ = env.reset(seed=derived_seed(self._seed, self._first + i, self._episode[i]))
        check_shape(env.observation_space, observation, self._id)
        self._write(obs, i, observation)
        self._score[i] = 0.0
        self._length[i] = 0

    def close(self) -> None:
        """Frees the environments, all of them even where one raises; may be called twice."""
        envs, self._envs = self._envs, []
        with ExitStack() as stack:
            for env in envs:
                stack.callback(env.close)

    def _abandon(self) -> None:
        """Closes after a failure, which stays the one that is raised."""
        try:
            self.close()
        except Exception:
            log.warning("env.id=%s could not be closed either", self._id, exc_info=True)
