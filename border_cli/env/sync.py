"""Environments of Gymnasium, N of them stepped in one loop.

Not Gymnasium's own synchronous vector: every episode has a seed of its own here, and an episode
that ends is followed by the next one within the same step.
"""

from __future__ import annotations

import logging
from contextlib import ExitStack
from typing import Any

import numpy as np
from numpy.typing import NDArray

from border_cli.core.interfaces import Env
from border_cli.core.seeding import derived_seed
from border_cli.core.types import Array, Episode, Step, map_array
from border_cli.env.config import GymConfig
from border_cli.env.construct import construct
from border_cli.env.missing import missing_packages
from border_cli.env.spaces import (
    action_reader,
    action_space,
    allocator,
    check_shape,
    observation_space,
    observation_writer,
)

log = logging.getLogger(__name__)


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
        self._allocate = allocator(self._space, self.num_envs)
        self._nobody = np.zeros(self.num_envs, np.bool_)  # [N]
        self._nobody.setflags(write=False)  # shared by all steps in which nothing ended
        self._forget()

    def _forget(self) -> None:
        self._obs: Array = self._allocate()  # [N, …]
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
        """Acts once in each environment that still moves."""
        envs, write, limit = self._envs, self._write, self._limit
        scores, lengths = self._score, self._length
        obs = self._obs
        next_obs = self._fresh()  # [N, …]
        reward = np.zeros(self.num_envs, np.float32)  # [N]
        ended = []  # (environment, terminated, truncated)

        actions = self._read(action)
        for i in self._live:
            observation, r, terminated, truncated, _ = envs[i].step(actions[i])
            write(next_obs, i, observation)
            reward[i] = r
            scores[i] += float(r)
            lengths[i] += 1
            if terminated or truncated or lengths[i] == limit:
                ended.append((i, terminated, truncated or lengths[i] == limit))
        if ended:
            return self._ending(obs, action, reward, next_obs, ended)
        self._obs = next_obs
        return Step(
            obs=obs,
            action=action,
            reward=reward,
            terminated=self._nobody,
            truncated=self._nobody,
            next_obs=next_obs,
            act_obs=next_obs,
        )

    def _ending(
        self,
        obs: Array,
        action: NDArray[Any],
        reward: NDArray[np.float32],
        next_obs: Array,
        ended: list[tuple[int, bool, bool]],
    ) -> Step:
        """The step that ends some episodes; while training, the next ones begin within it."""
        flags = np.zeros((2, self.num_envs), np.bool_)  # terminated and truncated
        for i, has_terminated, was_cut in ended:
            flags[:, i] = has_terminated, was_cut
        over = [i for i, _, _ in ended]
        episodes = tuple(Episode(self._score[i], self._length[i]) for i in over)
        self._obs = self._after(over, next_obs)
        return Step(
            obs=obs,
            action=action,
            reward=reward,
            terminated=flags[0],
            truncated=flags[1],
            next_obs=next_obs,
            act_obs=self._obs,
            episodes=episodes,
        )

    def _fresh(self) -> Array:
        """Storage for the next observations; those that lie still repeat their last one."""
        if len(self._live) == self.num_envs:
            return self._allocate()
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
