"""n-step transitions.

Hessel et al. 2018, "Rainbow: combining improvements in deep reinforcement learning", section
"Multi-step learning". Beyond the paper: at the end of an episode, its window is flushed as shorter
transitions, so that no step is lost, and a truncated episode bootstraps from its last observation.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from border_cli.core.interfaces import StepProcessor
from border_cli.core.types import (
    EPISODE,
    Array,
    State,
    Step,
    Transitions,
    combine_arrays,
    map_array,
)
from border_cli.step_processor.config import NStepConfig

Columns: TypeAlias = Mapping[str, NDArray[Any]]  # columns of transitions, by name


def suffix_powers(gamma: float, n_steps: int) -> NDArray[np.float64]:
    """Returns P with P[s, t] = gamma**(t-s) for t >= s, else 0.  [n, n]

    P @ rewards is the discounted sum from every step s of a window to the end of the window.
    """
    steps = np.arange(n_steps)
    exponent = steps[None, :] - steps[:, None]  # [n, n]
    return np.where(exponent >= 0, np.power(float(gamma), np.abs(exponent)), 0.0)


class NStep(StepProcessor):
    """A step processor that stores the last n steps of N environments; owned by one actor.

    Observations are copied only while windows fill, when an episode ends, or if an environment did
    not move. Otherwise, transitions contain the arrays of the step that leaves the window.
    """

    def __init__(self, config: NStepConfig, *, gamma: float, num_envs: int) -> None:
        self.config = config
        self._n = config.n_steps
        self._num_envs = num_envs
        self._gamma = np.float32(gamma)
        self._powers = suffix_powers(gamma, self._n)  # [n, n]
        self._discounts = np.power(float(gamma), np.arange(1, self._n + 1))  # [n] float64
        self._full_discount = np.full(num_envs, self._discounts[-1], np.float32)  # [N]
        self._full_discount.setflags(write=False)  # shared by many transitions
        self._next_episode: int | None = None  # None if episodes are not numbered
        self.reset()

    def reset(self) -> None:
        """Empties the windows and begins new episodes."""
        self._episode = np.zeros(self._num_envs, np.int64)  # [N]  numbers of the current episodes
        self._begin_episodes(range(self._num_envs))
        # Observations, actions and columns of the policy for the last n steps, oldest first.
        self._window: deque[tuple[Array, NDArray[Any], Columns]] = deque(maxlen=self._n)
        self._rewards = np.zeros((self._n, self._num_envs))  # float64, newest last
        self._count = np.zeros(self._num_envs, np.int64)  # [N]  pending steps of this episode
        self._full = self._n == 1  # whether every window has n - 1 pending steps

    def number_episodes(self, first: int) -> None:
        self._next_episode = first
        self._begin_episodes(range(self._num_envs))

    def _begin_episodes(self, envs: Collection[int]) -> None:
        """Numbers new episodes, in a copy, because transitions may share the old array."""
        if not envs or self._next_episode is None:
            return
        self._episode = self._episode.copy()
        self._episode[list(envs)] = range(self._next_episode, self._next_episode + len(envs))
        self._next_episode += len(envs)

    def state_dict(self) -> State:
        """Returns the windows and the numbers of the episodes."""
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
        """Restores a state returned by `state_dict`."""
        self.reset()
        self._episode, self._next_episode = state["episode"], state["next_episode"]
        if self._n > 1:
            self._window.extend(
                (step["obs"], step["action"], step["extras"]) for step in state["window"]
            )
            self._rewards[:] = state["rewards"]
            self._count[:] = state["count"]
            self._full = bool((self._count == self._n - 1).all())

    def forget(self, envs: Sequence[int]) -> None:
        """Drops the pending steps of these environments and starts new episodes in them."""
        if envs:
            self._begin_episodes(envs)
            self._count[list(envs)] = 0
            self._full = self._n == 1

    @property
    def pending(self) -> int:
        """Number of transitions still in the windows."""
        return int(self._count.sum())

    def process(self, step: Step) -> Transitions:
        """Returns the transitions completed by `step`, ordered by time and then by environment."""
        if self._n == 1 and step.moved is None:
            return self._one_step(step)
        self._window.append((step.obs, step.action, step.extras))
        self._rewards[:-1] = self._rewards[1:]
        self._rewards[-1] = step.reward
        ended = np.count_nonzero(step.terminated) or np.count_nonzero(step.truncated)
        if ended or step.moved is not None or not self._full:
            return self._flush(step)
        # Every window receives one step and emits one transition, so the counts stay at n - 1.
        obs, action, extras = self._window[0]
        return Transitions(
            obs=obs,
            action=action,
            reward=self._powers[0].dot(self._rewards).astype(np.float32),
            discount=self._full_discount,
            next_obs=step.next_obs,
            extras=self._add_episode(extras, self._episode),
        )

    def _add_episode(self, extras: Columns, episode: NDArray[np.int64]) -> Columns:
        """Returns the additional columns of transitions, with the episode numbers. [M] each"""
        return extras if self._next_episode is None else {**extras, EPISODE: episode}

    def _one_step(self, step: Step) -> Transitions:
        discount, episode = self._full_discount, self._episode  # [N]
        terminated = np.count_nonzero(step.terminated)
        if terminated:
            discount = ~step.terminated * self._gamma
        if terminated or np.count_nonzero(step.truncated):
            self._begin_episodes(np.flatnonzero(step.terminated | step.truncated).tolist())
        return Transitions(
            obs=step.obs,
            action=step.action,
            reward=step.reward,
            discount=discount,
            next_obs=step.next_obs,
            extras=self._add_episode(step.extras, episode),
        )

    def _flush(self, step: Step) -> Transitions:
        """Returns the transitions completed while windows fill or when an episode has ended."""
        # An environment that did not move has an empty window, flushed at the end of its episode.
        self._count += 1 if step.moved is None else step.moved
        ended = step.terminated | step.truncated  # [N]
        length = len(self._window)
        spans = np.arange(length, 0, -1)  # [W]  env steps from each step of the window to the end
        pending = spans[:, None] <= self._count  # [W, N]  steps of the current episodes
        leaving = pending & (ended | (spans[:, None] == self._n))  # [W, N]
        slot, env = np.nonzero(leaving)  # [M], [M]  oldest first
        self._count -= leaving.sum(axis=0)
        self._full = bool((self._count == self._n - 1).all())

        returns = (self._powers @ self._rewards)[self._n - length :]  # [W, N]
        discount = np.where(step.terminated[env], 0.0, self._discounts[spans[slot] - 1])
        episode = self._episode[env]
        self._begin_episodes(np.flatnonzero(ended).tolist())
        extras = {
            name: _select_rows([extras[name] for _, _, extras in self._window], leaving)
            for name in step.extras
        }
        return Transitions(
            obs=combine_arrays(
                lambda observations: _select_rows(observations, leaving),
                [obs for obs, _, _ in self._window],
            ),
            action=_select_rows([action for _, action, _ in self._window], leaving),
            reward=returns[slot, env].astype(np.float32),
            discount=discount.astype(np.float32),
            next_obs=map_array(lambda array: array[env], step.next_obs),
            extras=self._add_episode(extras, episode),
        )


def _select_rows(arrays: list[NDArray[Any]], leaving: NDArray[np.bool_]) -> NDArray[Any]:
    """Returns the rows that leave the window.  W times [N, …] -> [M, …]"""
    return np.concatenate([array[mask] for array, mask in zip(arrays, leaving, strict=True)])
