"""N Gymnasium environments stepped in one loop, with a separate seed for each episode.

Gymnasium's `SyncVectorEnv` is not used, because its episodes do not have separate seeds. In
training, the step that ends an episode also starts the next one; in evaluations, none follows.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy import ndarray
from numpy.typing import NDArray

from border_cli.core.interfaces import Env
from border_cli.core.raw_values import action_reader, make_converter
from border_cli.core.seeding import derived_seed
from border_cli.core.types import Array, Beat, Episode, State, Step, map_array
from border_cli.env.config import GymConfig
from border_cli.env.construct import construct, missing_packages
from border_cli.env.episode_state import replay, require_same_row, stack_actions
from border_cli.env.gym_spaces import allocator, raw_spaces
from border_cli.env.pictures import drawn_frame
from border_cli.env.step_results import (
    STEP,
    TERMINATED,
    TRUNCATED,
    as_flag,
    as_reward,
    info_values,
    other_answer,
    unpack_reset,
)
from border_cli.errors import BadStep
from border_cli.system.display import choose_renderer

log = logging.getLogger(__name__)

TIDY_EVERY = 1024  # stored steps at whose multiples actions of finished episodes are dropped


class GymEnv(Env):
    """N environments with the same id; owns them until `close`. Used by one thread."""

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
        self.envs: list[Any] = []  # Gymnasium environments with their wrappers
        if render == "rgb_array":
            choose_renderer()
        for i in range(config.num_envs):
            # Only the first one opens a window, because pygame has a single window per process.
            self.envs.append(construct(config, render if i == 0 else None))
            if beat:
                beat()
        raw = raw_spaces(self.envs[0].observation_space, self.envs[0].action_space, self._id)
        self._space, _ = raw.converted
        self._check = make_converter(raw.observation)
        self._plain = self._check.plain_dtype, self._check.shape
        self._read = action_reader(raw.action)
        self._allocate = allocator(self._space, self.num_envs)
        self._no_flags = np.zeros(self.num_envs, np.bool_)  # [N]
        self._no_flags.setflags(write=False)  # shared by all steps in which no episode ends
        self._first = first  # global index of the first environment, for seeds
        self._clear(seed=0)

    @property
    def frames_per_s(self) -> float:  # type: ignore[override]
        """Frame rate in the environment's metadata, by default 30."""
        rate = self.envs[0].metadata.get("render_fps")
        return float(rate) if rate else 30.0

    def frame(self) -> NDArray[np.uint8]:
        """Returns the frame rendered by the first environment. [H, W, 3]"""
        return drawn_frame(self.envs[0], self._id)

    def _clear(self, seed: int) -> None:
        """Resets the state of all episodes. The next episodes derive their seeds from `seed`."""
        self._obs: Array = self._allocate()  # [N, …]
        self._acting = list(range(self.num_envs))  # environments that still act
        self._seed = seed
        self._number = [0] * self.num_envs  # number of the running episode, from 0
        self._score = [0.0] * self.num_envs  # returns of the running episodes
        self._length = [0] * self.num_envs  # lengths of the running episodes
        # Lengths of earlier episodes of the same game, such as lives. A resume replays them, too.
        self._lives: list[list[int]] = [[] for _ in self.envs]
        self._recent: list[NDArray[Any]] = []  # actions of the latest steps, each [N] or [N, A]

    def _seed_of(self, i: int) -> int:
        """Returns the seed of the running episode, or of the first episode of its game."""
        first = self._number[i] - len(self._lives[i])
        return derived_seed(self._seed, self._first + i, first)

    def reset(self, seed: int) -> Array:
        """Starts N new episodes and returns their first observations. [N, …]"""
        self._clear(seed)
        with missing_packages(f"env.id={self._id}"):  # windows open with the first reset
            for i in range(self.num_envs):
                self._begin(i, self._obs, anew=True)
        return self._obs

    def _tidy(self) -> None:
        """Drops the actions of finished episodes."""
        del self._recent[: max(0, len(self._recent) - max(map(self._moves, range(self.num_envs))))]

    def _moves(self, i: int) -> int:
        """Returns the number of actions of environment i that `replay` needs."""
        return self._length[i] + sum(self._lives[i])

    def state_dict(self) -> State:
        """Returns the running episodes and the observations to act on next."""
        self._tidy()
        return {
            "episodes": list(self._number),
            "scores": list(self._score),
            "lengths": list(self._length),
            "lives": [list(lengths) for lengths in self._lives],
            "actions": stack_actions(self._recent, self.num_envs),  # [T, N] or [T, N, A]
            "obs": self._obs,
        }

    def resume(
        self, seed: int, state: Mapping[str, Any], beat: Beat = lambda: None
    ) -> tuple[Array, list[int]]:
        """Replays the running episodes. Returns the observations, and the environments that started
        a new episode because the replay diverged, ended or raised. After a vector implementation,
        all start new ones."""
        if "episodes" not in state:  # saved by a vector implementation, with different seeds
            return self.reset(seed), list(range(self.num_envs))
        self._clear(seed)
        self._number, self._score = list(state["episodes"]), list(state["scores"])
        self._length, self._lives = list(state["lengths"]), [list(game) for game in state["lives"]]
        self._recent = list(state["actions"])
        return self._obs, [i for i in range(self.num_envs) if not self._restore(i, state, beat)]

    def _restore(self, i: int, state: Mapping[str, Any], beat: Beat) -> bool:
        """Replays the episode of environment i, or starts its next one if that fails. Returns
        whether the episode was restored."""
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
        except Exception as reason:  # environments of users may raise anything
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
        """Acts once in each environment whose episode has not ended."""
        envs, limit = self.envs, self._limit
        plain_dtype, plain_shape = self._plain
        scores, lengths = self._score, self._length
        obs = self._obs
        next_obs = self._allocate_next()  # [N, …]
        reward = np.zeros(self.num_envs, np.float32)  # [N]
        ended = []  # (environment, terminated, truncated, info values)

        actions = self._read(action)
        i = 0
        try:
            for i in self._acting:
                answer = envs[i].step(actions[i])
                try:  # as in `unpack_step`; a call would cost more than the check
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
                    values = info_values(info, self._info_metrics)
                    ended.append((i, terminated, truncated or lengths[i] == limit, values))
        except BadStep as error:
            raise error.within(self._locate(i)) from None
        self._recent.append(action)
        if len(self._recent) % TIDY_EVERY == 0:
            self._tidy()
        if ended:
            return self._finish_episodes(obs, action, reward, next_obs, ended)
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

    def _finish_episodes(
        self,
        obs: Array,
        action: NDArray[Any],
        reward: NDArray[np.float32],
        next_obs: Array,
        ended: list[tuple[int, bool, bool, tuple[float, ...]]],
    ) -> Step:
        """Returns a step that ends some episodes. In training, it also starts the next ones."""
        flags = np.zeros((2, self.num_envs), np.bool_)  # terminated and truncated
        for i, terminated, truncated, _ in ended:
            flags[:, i] = terminated, truncated
        episodes = tuple(Episode(self._score[i], self._length[i], info) for i, *_, info in ended)
        self._obs = self._start_next([i for i, *_ in ended], next_obs)
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

    def _allocate_next(self) -> Array:
        """Allocates the next observations. Environments at rest repeat their last observation."""
        if len(self._acting) == self.num_envs:
            return self._allocate()
        return map_array(np.copy, self._obs)

    def _start_next(self, ended: list[int], next_obs: Array) -> Array:
        """Returns the observations to act on after the episodes of `ended`. In training, starts the
        next episodes. [N, …]"""
        if not self._training:
            self._acting = [i for i in self._acting if i not in ended]
            return next_obs
        act_obs = map_array(np.copy, next_obs)
        for i in ended:
            self._number[i] += 1
            self._begin(i, act_obs)
        return act_obs

    def _begin(self, i: int, obs: Array, *, anew: bool = False) -> None:
        """Starts the next episode of environment i and writes its first observation to `obs`."""
        # The attribute `goes_on` means that the next episode continues the last one and therefore
        # has no separate seed.
        if not anew and getattr(self.envs[i].unwrapped, "goes_on", False):
            self._lives[i].append(self._length[i])
        else:
            self._lives[i].clear()
        self._score[i] = 0.0
        self._length[i] = 0
        try:
            answer = self.envs[i].reset(seed=self._seed_of(i))
            self._check.write(obs, i, unpack_reset(answer)[0])
        except BadStep as error:
            raise error.within(f"{self._locate(i)}, at reset") from None

    def _locate(self, i: int) -> str:
        """Names environment i in an error message."""
        number = f", environment {i + 1} of {self.num_envs}" if self.num_envs > 1 else ""
        return f"env.id={self._id}{number}"

    def close(self) -> None:
        """Closes the environments. Can be called more than once."""
        envs, self.envs = self.envs, []
        for env in envs:
            env.close()
