"""N Gymnasium environments stepped in one loop, each episode with a seed of its own.

Not Gymnasium's own synchronous vector, where episodes have no seeds of their own; and here an
episode that ends is followed by the next one within the same step.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy import ndarray
from numpy.typing import NDArray

from border_cli.core.interfaces import Env
from border_cli.core.raw_values import action_reader, observations
from border_cli.core.seeding import derived_seed
from border_cli.core.types import Array, Beat, Episode, State, Step, map_array
from border_cli.env.answers import (
    STEP,
    TERMINATED,
    TRUNCATED,
    as_flag,
    as_reward,
    begun,
    info_values,
    other_answer,
)
from border_cli.env.config import GymConfig
from border_cli.env.construct import construct, missing_packages
from border_cli.env.episode_state import replay, require_same_row, stacked
from border_cli.env.gym_spaces import allocator, raw_spaces
from border_cli.env.pictures import choose_renderer, drawn_frame
from border_cli.errors import BadStep

log = logging.getLogger(__name__)

TIDY_EVERY = 1024  # steps after which actions of episodes that are over are dropped


class GymEnv(Env):
    """N environments of one id; owns them until `close`. One thread calls it."""

    def __init__(
        self,
        config: GymConfig,
        *,
        training: bool,
        render: str | None = None,
        first: int = 0,
        beat: Beat | None = None,
    ) -> None:
        self.num_envs = config.num_envs
        self._id = str(config.id)
        self._training = training
        config = config if training else config.for_evaluation()
        self._limit = config.max_episode_steps
        self._info_metrics = config.recorded_info
        self.envs: list[Any] = []  # as Gymnasium made them
        if render == "rgb_array":
            choose_renderer()
        for i in range(config.num_envs):
            # A process has one window at most: pygame draws all environments into the same.
            self.envs.append(construct(config, render if i == 0 else None))
            if beat:
                beat()
        raw = raw_spaces(self.envs[0].observation_space, self.envs[0].action_space, self._id)
        self._space, _ = raw.ours
        self._check = observations(raw.observation)
        self._plain = self._check.plain_dtype, self._check.shape
        self._read = action_reader(raw.action)
        self._allocate = allocator(self._space, self.num_envs)
        self._no_flags = np.zeros(self.num_envs, np.bool_)  # [N]
        self._no_flags.setflags(write=False)  # shared by all steps in which nothing ended
        self._first = first  # number of the first environment, from which the seeds follow
        self._clear(seed=0)

    @property
    def frames_per_s(self) -> float:  # type: ignore[override]
        """As its metadata say."""
        rate = self.envs[0].metadata.get("render_fps")
        return float(rate) if rate else 30.0

    def frame(self) -> NDArray[np.uint8]:
        """The picture that the first environment draws. [H, W, 3]"""
        return drawn_frame(self.envs[0], self._id)

    def _clear(self, seed: int) -> None:
        """No episode has begun yet; those to come belong to this seed."""
        self._obs: Array = self._allocate()  # [N, …]
        self._live = list(range(self.num_envs))  # those that still move
        self._seed = seed
        self._number = [0] * self.num_envs  # how many episodes of this seed have begun, less one
        self._score = [0.0] * self.num_envs  # of the running episodes
        self._length = [0] * self.num_envs
        # Of the episodes that the running one goes on from, as after a life of the same game: they
        # are replayed together.
        self._lives: list[list[int]] = [[] for _ in self.envs]  # their lengths
        self._recent: list[NDArray[Any]] = []  # each [N] or [N, A]: the actions of one step

    def _seed_of(self, i: int) -> int:
        """Seed of the running episode, or of the one that it goes on from."""
        first = self._number[i] - len(self._lives[i])
        return derived_seed(self._seed, self._first + i, first)

    def reset(self, seed: int) -> Array:
        """Starts N episodes, whatever ran before. [N, …]"""
        self._clear(seed)
        with missing_packages(f"env.id={self._id}"):  # windows open with the first reset
            for i in range(self.num_envs):
                self._begin(i, self._obs, anew=True)
        return self._obs

    def _tidy(self) -> None:
        """Drops actions of episodes that are over."""
        del self._recent[: max(0, len(self._recent) - max(map(self._moves, range(self.num_envs))))]

    def _moves(self, i: int) -> int:
        """The actions of environment i that `replay` needs."""
        return self._length[i] + sum(self._lives[i])

    def state_dict(self) -> State:
        """The running episodes, and the observations to act on next."""
        self._tidy()
        return {
            "episodes": list(self._number),
            "scores": list(self._score),
            "lengths": list(self._length),
            "lives": [list(each) for each in self._lives],
            "actions": stacked(self._recent, self.num_envs),  # [T, N] or [T, N, A]
            "obs": self._obs,
        }

    def resume(
        self, seed: int, state: Mapping[str, Any], beat: Beat = lambda: None
    ) -> tuple[Array, list[int]]:
        """Replays the running episodes. One that diverges, ends or raises is followed by a new one;
        its environment is returned."""
        if "episodes" not in state:  # of a vector implementation, whose seeds are others
            return self.reset(seed), list(range(self.num_envs))
        self._clear(seed)
        self._number, self._score = list(state["episodes"]), list(state["scores"])
        self._length, self._lives = list(state["lengths"]), [list(each) for each in state["lives"]]
        self._recent = list(state["actions"])
        return self._obs, [i for i in range(self.num_envs) if not self._replayed(i, state, beat)]

    def _replayed(self, i: int, state: Mapping[str, Any], beat: Beat) -> bool:
        """Whether environment i is where it was; else its next episode has begun."""
        actions = state["actions"]
        try:
            last = replay(
                self.envs[i],
                self._read(actions[len(actions) - self._moves(i) :, i]),
                lives=self._lives[i],
                seed=self._seed_of(i),
                score=self._score[i],
                beat=beat,
            )
            self._check.write(self._obs, i, last)
            require_same_row(i, self._obs, state["obs"])
        except Exception as reason:  # a user's environment may raise anything
            log.info(
                "env.id=%s: starting a new episode, the saved one cannot be continued: %r",
                self._id,
                reason,
            )
            self._number[i] += 1
            self._begin(i, self._obs, anew=True)
            return False
        return True

    def step(self, action: NDArray[Any]) -> Step:
        """Acts once in each environment that still moves."""
        envs, limit = self.envs, self._limit
        plain_dtype, plain_shape = self._plain
        scores, lengths = self._score, self._length
        obs = self._obs
        next_obs = self._fresh()  # [N, …]
        reward = np.zeros(self.num_envs, np.float32)  # [N]
        ended = []  # (environment, terminated, truncated, values in info)

        actions = self._read(action)
        i = 0
        try:
            for i in self._live:
                answer = envs[i].step(actions[i])
                try:  # as `stepped`, whose call would cost more than the check
                    observation, r, terminated, truncated, info = answer
                except (TypeError, ValueError):
                    raise other_answer(STEP, answer) from None
                if (
                    type(observation) is ndarray
                    and observation.dtype is plain_dtype
                    and observation.shape == plain_shape
                ):
                    next_obs[i] = observation  # type: ignore[index]
                else:
                    self._check.write(next_obs, i, observation)
                if type(r) is not float:
                    r = as_reward(r)
                reward[i] = r
                scores[i] += r
                lengths[i] += 1
                if terminated is not False or truncated is not False:
                    terminated = as_flag(TERMINATED, terminated)
                    truncated = as_flag(TRUNCATED, truncated)
                if terminated or truncated or lengths[i] == limit:
                    over = info_values(info, self._info_metrics)
                    ended.append((i, terminated, truncated or lengths[i] == limit, over))
        except BadStep as error:
            raise error.within(self._place(i)) from None
        self._recent.append(action)
        if len(self._recent) % TIDY_EVERY == 0:
            self._tidy()
        if ended:
            return self._ending(obs, action, reward, next_obs, ended)
        self._obs = next_obs
        return Step(
            obs=obs,
            action=action,
            reward=reward,
            terminated=self._no_flags,
            truncated=self._no_flags,
            next_obs=next_obs,
            act_obs=next_obs,
        )

    def _ending(
        self,
        obs: Array,
        action: NDArray[Any],
        reward: NDArray[np.float32],
        next_obs: Array,
        ended: list[tuple[int, bool, bool, tuple[float, ...]]],
    ) -> Step:
        """The step that ends some episodes; while training, the next ones begin within it."""
        flags = np.zeros((2, self.num_envs), np.bool_)  # terminated and truncated
        for i, has_terminated, was_cut, _ in ended:
            flags[:, i] = has_terminated, was_cut
        episodes = tuple(Episode(self._score[i], self._length[i], info) for i, *_, info in ended)
        self._obs = self._after([i for i, *_ in ended], next_obs)
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
        """Storage for the next observations; environments at rest repeat their last one."""
        if len(self._live) == self.num_envs:
            return self._allocate()
        return map_array(np.copy, self._obs)

    def _after(self, ended: list[int], next_obs: Array) -> Array:
        """The observations to act on once the episodes of `ended` are over.  [N, …]"""
        if not self._training:
            self._live = [i for i in self._live if i not in ended]
            return next_obs
        act_obs = map_array(np.copy, next_obs)
        for i in ended:
            self._number[i] += 1
            self._begin(i, act_obs)
        return act_obs

    def _begin(self, i: int, obs: Array, *, anew: bool = False) -> None:
        """Starts the next episode of environment i and writes its first observation into `obs`."""
        # An environment whose next episode goes on where the last one ended, without a seed of its
        # own, says so by an attribute.
        if not anew and getattr(self.envs[i].unwrapped, "goes_on", False):
            self._lives[i].append(self._length[i])
        else:
            self._lives[i].clear()
        self._score[i] = 0.0
        self._length[i] = 0
        try:
            answer = self.envs[i].reset(seed=self._seed_of(i))
            self._check.write(obs, i, begun(answer)[0])
        except BadStep as error:
            raise error.within(f"{self._place(i)}, at reset") from None

    def _place(self, i: int) -> str:
        """Where an error happened; one environment alone needs no number."""
        number = f", environment {i + 1} of {self.num_envs}" if self.num_envs > 1 else ""
        return f"env.id={self._id}{number}"

    def close(self) -> None:
        """Frees the environments; may be called twice."""
        envs, self.envs = self.envs, []
        for env in envs:
            env.close()
