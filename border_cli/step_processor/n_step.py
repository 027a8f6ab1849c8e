"""n-step transitions.

Hessel et al. 2018, "Rainbow: combining improvements in deep reinforcement learning", section
"Multi-step learning". Beyond the paper: an episode that ends flushes its window as shorter rows,
so that no step is lost, and a truncated one bootstraps from its last observation.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from border_cli.core.interfaces import StepProcessor
from border_cli.core.types import EPISODE, Array, State, Step, Transitions, map_array
from border_cli.step_processor.config import NStepConfig

Columns: TypeAlias = Mapping[str, NDArray[Any]]  # of rows, by name


def suffix_powers(gamma: float, n_steps: int) -> NDArray[np.float64]:
    """P with P[s, t] = gamma**(t-s) for t >= s, else 0.  [n, n]

    P @ rewards is, for every step s of a window, its discounted sum up to the window's end.
    """
    steps = np.arange(n_steps)
    exponent = steps[None, :] - steps[:, None]  # [n, n]
    return np.where(exponent >= 0, np.power(float(gamma), np.abs(exponent)), 0.0)


class NStep(StepProcessor):
    """Keeps the last n steps of N environments; owned by one actor.

    It copies observations only around the end of an episode: otherwise the rows are the arrays
    of the step that leaves the window.
    """

    def __init__(self, config: NStepConfig, *, gamma: float, num_envs: int) -> None:
        self.config = config
        self._n = config.n_steps
        self._num_envs = num_envs
        self._gamma = np.float32(gamma)
        self._powers = suffix_powers(gamma, self._n)  # [n, n]
        self._discounts = np.power(float(gamma), np.arange(1, self._n + 1))  # [n] float64
        self._full_discount = np.full(num_envs, self._discounts[-1], np.float32)  # [N]
        self._full_discount.setflags(write=False)  # shared by many rows
        self._next_episode: int | None = None  # its number; None: rows have none
        self.reset()

    def reset(self) -> None:
        """Empties the windows: the environments start anew."""
        self._episode = np.zeros(self._num_envs, np.int64)  # [N]  the running one; see `_begin`
        self._begin(range(self._num_envs))
        # Observations, actions and columns of the policy in the last n steps, oldest first.
        self._window: deque[tuple[Array, NDArray[Any], Columns]] = deque(maxlen=self._n)
        self._rewards = np.zeros((self._n, self._num_envs))  # float64, the newest last
        self._count = np.zeros(self._num_envs, np.int64)  # [N]  pending steps, all of one episode
        self._full = self._n == 1  # each has n - 1 pending steps

    def number_episodes(self, first: int) -> None:
        self._next_episode = first
        self._begin(range(self._num_envs))

    def _begin(self, envs: Collection[int]) -> None:
        """Episodes of these environments begin; rows may share the old array."""
        if not envs or self._next_episode is None:
            return
        self._episode = self._episode.copy()
        self._episode[list(envs)] = range(self._next_episode, self._next_episode + len(envs))
        self._next_episode += len(envs)

    def state_dict(self) -> State:
        """The windows, exactly, and the numbers of the episodes."""
        return {
            "episode": self._episode,
            "next_episode": self._next_episode,
            "window": [
                {"obs": obs, "action": action, "extras": dict(extras)}
                for obs, action, extras in self._window
            ],
            "rewards": self._rewards.copy(),
            "count": self._count.copy(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores what `state_dict` gave."""
        self.reset()
        self._episode, self._next_episode = state["episode"], state["next_episode"]
        if self._n > 1:
            self._window.extend(
                (each["obs"], each["action"], each["extras"]) for each in state["window"]
            )
            self._rewards[:] = state["rewards"]
            self._count[:] = state["count"]
            self._full = bool((self._count == self._n - 1).all())

    def forget(self, envs: Sequence[int]) -> None:
        """Drops the pending steps of these environments; the windows of the others stay full."""
        if envs:
            self._begin(envs)
            self._count[list(envs)] = 0
            self._full = self._n == 1

    @property
    def pending(self) -> int:
        """Rows still in the windows."""
        return int(self._count.sum())

    def process(self, step: Step) -> Transitions:
        """The rows that `step` completes: by time, and within one time by environment."""
        if self._n == 1 and step.moved is None:
            return self._one_step(step)
        self._window.append((step.obs, step.action, step.extras))
        self._rewards[:-1] = self._rewards[1:]
        self._rewards[-1] = step.reward
        ended = np.count_nonzero(step.terminated) or np.count_nonzero(step.truncated)
        if ended or step.moved is not None or not self._full:
            return self._flush(step)
        # Every window takes one step in and gives one row out: the counts stay at n - 1.
        obs, action, extras = self._window[0]
        return Transitions(
            obs=obs,
            action=action,
            reward=self._powers[0].dot(self._rewards).astype(np.float32),
            discount=self._full_discount,
            next_obs=step.next_obs,
            extras=self._with_episode(extras, self._episode),
        )

    def _with_episode(self, extras: Columns, episode: NDArray[np.int64]) -> Columns:
        """The columns of a row beside those of all runs. [M] each"""
        return extras if self._next_episode is None else {**extras, EPISODE: episode}

    def _one_step(self, step: Step) -> Transitions:
        discount, episode = self._full_discount, self._episode  # [N]
        terminated = np.count_nonzero(step.terminated)
        if terminated:
            discount = ~step.terminated * self._gamma
        if terminated or np.count_nonzero(step.truncated):
            self._begin(np.flatnonzero(step.terminated | step.truncated).tolist())
        return Transitions(
            obs=step.obs,
            action=step.action,
            reward=step.reward,
            discount=discount,
            next_obs=step.next_obs,
            extras=self._with_episode(step.extras, episode),
        )

    def _flush(self, step: Step) -> Transitions:
        """The rows where windows are still filling or an episode has just ended."""
        # An environment that did not move has an empty window: its end flushed it.
        self._count += 1 if step.moved is None else step.moved
        ended = step.terminated | step.truncated  # [N]
        length = len(self._window)
        spans = np.arange(length, 0, -1)  # [W]  env steps from each step of the window to now
        pending = spans[:, None] <= self._count  # [W, N]  of the running episode
        leaving = pending & (ended | (spans[:, None] == self._n))  # [W, N]
        slot, env = np.nonzero(leaving)  # [M], [M]  oldest first
        self._count -= leaving.sum(axis=0)
        self._full = bool((self._count == self._n - 1).all())

        returns = (self._powers @ self._rewards)[self._n - length :]  # [W, N]
        discount = np.where(step.terminated[env], 0.0, self._discounts[spans[slot] - 1])
        episode = self._episode[env]
        self._begin(np.flatnonzero(ended).tolist())
        extras = {
            name: _rows([extras[name] for _, _, extras in self._window], leaving)
            for name in step.extras
        }
        return Transitions(
            obs=_gather([obs for obs, _, _ in self._window], leaving),
            action=_rows([action for _, action, _ in self._window], leaving),
            reward=returns[slot, env].astype(np.float32),
            discount=discount.astype(np.float32),
            next_obs=map_array(lambda array: array[env], step.next_obs),
            extras=self._with_episode(extras, episode),
        )


def _gather(observations: list[Array], leaving: NDArray[np.bool_]) -> Array:
    """The observations that leave the window, oldest first.  W times [N, …] -> [M, …]"""
    named = [each for each in observations if isinstance(each, dict)]
    if named:
        return {key: _rows([each[key] for each in named], leaving) for key in named[0]}
    return _rows([each for each in observations if not isinstance(each, dict)], leaving)


def _rows(arrays: list[NDArray[Any]], leaving: NDArray[np.bool_]) -> NDArray[Any]:
    """W times [N, …] -> [M, …]"""
    return np.concatenate([each[rows] for each, rows in zip(arrays, leaving, strict=True)])
