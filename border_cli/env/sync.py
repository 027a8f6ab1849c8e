"""Environments of Gymnasium, N of them stepped in one loop.

Not Gymnasium's own synchronous vector: every episode has a seed of its own here, and an episode
that ends is followed by the next one within the same step.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import gymnasium as gym
import numpy as np
from numpy import ndarray
from numpy.typing import NDArray

from border_cli.core.errors import BadStep, CheckpointError
from border_cli.core.interfaces import Env
from border_cli.core.types import Array, Beat, Episode, State, Step, map_array
from border_cli.env.answers import (
    RESET,
    STEP,
    as_flag,
    as_reward,
    observation_writer,
    place_of,
    plain_layout,
    refuse_other_answer,
)
from border_cli.env.config import GymConfig
from border_cli.env.construct import construct, starting
from border_cli.env.episodes import RECENT, Episodes, require_same_row
from border_cli.env.spaces import (
    action_reader,
    action_space,
    allocator,
    observation_space,
)

log = logging.getLogger(__name__)


class GymEnv(Env):
    """N environments of one id; owns them until `close`. One thread calls it."""

    def __init__(
        self, config: GymConfig, *, training: bool, render: str | None = None, first: int = 0
    ) -> None:
        self.num_envs = config.num_envs
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
        self._plain = plain_layout(observation)
        self._read = action_reader(action)
        self._allocate = allocator(self._space, self.num_envs)
        self._nobody = np.zeros(self.num_envs, np.bool_)  # [N]
        self._nobody.setflags(write=False)  # shared by all steps in which nothing ended
        self._running = Episodes(self._envs, first=first, read=self._read)
        self._tallies = self._running.score, self._running.length, self._running.recent
        self._forget(seed=0)

    @property
    def single(self) -> gym.Env[Any, Any]:
        """The first environment, as Gymnasium made it."""
        env: gym.Env[Any, Any] = self._envs[0]
        return env

    def _forget(self, seed: int) -> None:
        self._obs: Array = self._allocate()  # [N, …]
        self._live = list(range(self.num_envs))  # those that still move
        self._running.clear(seed)

    def reset(self, seed: int) -> Array:
        """Starts N episodes, whatever ran before. [N, …]"""
        self._forget(seed)
        with self._starting():
            for i in range(self.num_envs):
                self._begin(i, self._obs)
        return self._obs

    def state_dict(self) -> State:
        """The running episodes, and what is acted on next."""
        return {**self._running.state_dict(), "obs": self._obs}

    def resume(
        self, seed: int, state: Mapping[str, Any], beat: Beat = lambda: None
    ) -> tuple[Array, list[int]]:
        """Plays the running episodes again. One that goes otherwise than before, ends or raises
        gives way to the next one; its environment is returned."""
        if "episodes" not in state:  # of a vector implementation, whose seeds are others
            return self.reset(seed), list(range(self.num_envs))
        if len(state["episodes"]) != self.num_envs:
            raise CheckpointError(
                f"env.num_envs={self.num_envs} does not match the saved state of "
                f"{len(state['episodes'])} environments"
            )
        self._forget(seed)
        self._running.load_state_dict(state)
        anew = []
        with self._starting():
            for i in range(self.num_envs):
                try:
                    last = self._running.retrace(i, state["actions"][i], beat)
                    self._write(self._obs, i, last)
                    require_same_row(i, self._obs, state["obs"])
                except Exception as reason:  # of somebody else's environment: it may be anything
                    log.info(
                        "env.id=%s: starting a new episode, the saved one cannot be continued: %r",
                        self._id,
                        reason,
                    )
                    self._running.number[i] += 1
                    self._begin(i, self._obs)
                    anew.append(i)
        return self._obs, anew

    @contextmanager
    def _starting(self) -> Iterator[None]:
        """The block in which first episodes begin; a failure closes all environments."""
        try:
            with starting(self._id):
                yield
        except BaseException:
            self._abandon()
            raise

    def step(self, action: NDArray[Any]) -> Step:
        """Acts once in each environment that still moves."""
        envs, write, limit = self._envs, self._write, self._limit
        plain_dtype, plain_shape = self._plain
        scores, lengths, recent = self._tallies
        obs = self._obs
        next_obs = self._fresh()  # [N, …]
        reward = np.zeros(self.num_envs, np.float32)  # [N]
        ended = []  # (environment, terminated, truncated)

        actions = self._read(action)
        i = 0
        try:
            for i in self._live:
                observation, r, terminated, truncated, _ = envs[i].step(actions[i])
                if (
                    type(observation) is ndarray
                    and observation.dtype is plain_dtype
                    and observation.shape == plain_shape
                ):
                    next_obs[i] = observation  # type: ignore[index]
                else:
                    write(next_obs, i, observation)
                if type(r) is not float:
                    r = as_reward(r)
                reward[i] = r
                scores[i] += r
                lengths[i] += 1
                if terminated is not False or truncated is not False:
                    terminated = as_flag("terminated", terminated)
                    truncated = as_flag("truncated", truncated)
                if terminated or truncated or lengths[i] == limit:
                    ended.append((i, terminated, truncated or lengths[i] == limit))
        except BadStep as error:
            raise error.within(self._place(i)) from None
        except (TypeError, ValueError) as error:
            refuse_other_answer(error, self._place(i), STEP)
            raise
        recent.append(action)
        if len(recent) == RECENT:
            self._running.tidy()
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
        running = self._running
        episodes = tuple(Episode(running.score[i], running.length[i]) for i in over)
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
            self._running.number[i] += 1
            self._begin(i, act_obs)
        return act_obs

    def _begin(self, i: int, obs: Array) -> None:
        """Starts the next episode of environment i and writes its first observation into `obs`."""
        try:
            self._write(obs, i, self._running.begin(i))
        except BadStep as error:
            raise error.within(f"{self._place(i)}, at reset") from None
        except (TypeError, ValueError) as error:
            refuse_other_answer(error, self._place(i), RESET)
            raise

    def _place(self, i: int) -> str:
        return place_of(self._id, i, self.num_envs)

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
            log.warning("closing env.id=%s failed as well", self._id, exc_info=True)
