"""n-step transitions.

Hessel et al. 2018, "Rainbow: combining improvements in deep reinforcement learning", section
"Multi-step learning". Beyond the paper: an episode that ends flushes its window as shorter rows,
so that no step is lost, and a truncated one bootstraps from its last observation.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from border_cli.core.errors import CheckpointError
from border_cli.core.interfaces import StepProcessor
from border_cli.core.types import Array, State, Step, Transitions, map_array
from border_cli.step_processor.config import NStepConfig

SLIDES = 128  # steps between two moves of the pending rewards


def suffix_powers(gamma: float, n_steps: int) -> NDArray[np.float64]:
    """P with P[s, t] = gamma**(t-s) for t >= s, else 0.  [n, n]

    P @ rewards is, for every step s of a window, its discounted sum up to the window's end.
    """
    steps = np.arange(n_steps)
    exponent = steps[None, :] - steps[:, None]  # [n, n]
    return np.where(exponent >= 0, np.power(float(gamma), np.abs(exponent)), 0.0)


class PendingStep(NamedTuple):
    """What the window needs of a step that a checkpoint restored."""

    obs: Array  # [N, …]
    action: NDArray[Any]  # [N] or [N, A]


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
        self.reset()

    def reset(self) -> None:
        """Empties the windows: the environments start anew."""
        self._window: deque[Step | PendingStep] = deque(maxlen=self._n)  # oldest first
        # Float64, the newest last; the last n rows slide through it, see `_add_reward`.
        self._rewards = np.zeros((self._n - 1 + max(self._n, SLIDES), self._num_envs))
        self._newest = self._n - 2  # row of the newest; n - 1 rows of zeros stand before the first
        self._count = np.zeros(self._num_envs, np.int64)  # [N]  pending steps, all of one episode
        self._filling = self._n  # steps until every window is full, if no episode ends

    def state_dict(self) -> State:
        """The windows, exactly; nothing where rows span one step."""
        if self._n == 1:
            return {}
        window = list(self._window)
        # The rewards keep their place: the same rows of the same matrix add up to the same bits.
        last = self._rewards[self._newest - self._n + 2 : self._newest + 1]  # [n-1, N]
        return {
            "obs": _stacked([each.obs for each in window]) if window else None,  # [W, N, …]
            "action": np.stack([each.action for each in window]) if window else None,  # [W, N]
            "rewards": last.copy(),
            "newest": self._newest,
            "count": self._count.copy(),
            "filling": self._filling,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores what `state_dict` gave; raises CheckpointError if it does not fit."""
        self.reset()
        if self._n == 1:
            return
        wanted = (self._n - 1, self._num_envs)
        rewards: NDArray[np.float64] | None = state.get("rewards")
        if rewards is None or rewards.shape != wanted:
            found = "none" if rewards is None else f"{rewards.shape[0]} of {rewards.shape[1]}"
            raise CheckpointError(
                f"step_processor.n_steps={self._n} needs {wanted[0]} steps of {wanted[1]} "
                f"environments, but the saved state has {found}"
            )
        self._newest = state["newest"]
        self._rewards[self._newest - self._n + 2 : self._newest + 1] = rewards
        self._count[:] = state["count"]
        self._filling = state["filling"]
        if state["obs"] is not None:
            for w, action in enumerate(state["action"]):
                self._window.append(PendingStep(_row_of(state["obs"], w), action))

    def forget(self, envs: Sequence[int]) -> None:
        """Drops the pending steps of these environments; the windows of the others stay full."""
        if envs:
            self._count[list(envs)] = 0
            self._filling = self._n  # windows differ in length until then

    @property
    def pending(self) -> int:
        """Rows still in the windows."""
        return int(self._count.sum())

    def process(self, step: Step) -> Transitions:
        """The rows that `step` completes: by time, and within one time by environment."""
        if self._n == 1:
            return self._one_step(step)
        self._window.append(step)
        rewards = self._add_reward(step.reward)  # [n, N]
        self._filling = max(0, self._filling - 1)
        ended = np.count_nonzero(step.terminated) or np.count_nonzero(step.truncated)
        if ended or step.moved is not None:
            self._filling = self._n
        if self._filling > 0:
            return self._flush(step, rewards)
        # Every window takes one step in and gives one row out: the counts stay at n - 1.
        oldest = self._window[0]
        return Transitions(
            obs=oldest.obs,
            action=oldest.action,
            reward=self._powers[0].dot(rewards).astype(np.float32),
            discount=self._full_discount,
            next_obs=step.next_obs,
        )

    def _one_step(self, step: Step) -> Transitions:
        discount = self._full_discount  # [N]
        if np.count_nonzero(step.terminated):
            discount = ~step.terminated * self._gamma
        if step.moved is not None:
            return _of_moved(step, discount, step.moved)
        return Transitions(
            obs=step.obs,
            action=step.action,
            reward=step.reward,
            discount=discount,
            next_obs=step.next_obs,
        )

    def _add_reward(self, reward: NDArray[np.float32]) -> NDArray[np.float64]:
        """The rewards of the last n steps, the newest last.  [n, N], a view"""
        newest = self._newest + 1
        if newest == len(self._rewards):  # once in many steps, in place of moving all at each
            self._rewards[: self._n - 1] = self._rewards[newest - self._n + 1 :]
            newest = self._n - 1
        self._rewards[newest] = reward
        self._newest = newest
        return self._rewards[newest - self._n + 1 : newest + 1]

    def _flush(self, step: Step, rewards: NDArray[np.float64]) -> Transitions:
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

        returns = (self._powers @ rewards)[self._n - length :]  # [W, N]
        discount = np.where(step.terminated[env], 0.0, self._discounts[spans[slot] - 1])
        return Transitions(
            obs=_gather([each.obs for each in self._window], leaving),
            action=_rows([each.action for each in self._window], leaving),
            reward=returns[slot, env].astype(np.float32),
            discount=discount.astype(np.float32),
            next_obs=map_array(lambda array: array[env], step.next_obs),
        )


def _of_moved(step: Step, discount: NDArray[np.float32], moved: NDArray[np.bool_]) -> Transitions:
    """One-step rows of the environments that moved."""
    return Transitions(
        obs=map_array(lambda array: array[moved], step.obs),
        action=step.action[moved],
        reward=step.reward[moved],
        discount=discount[moved],
        next_obs=map_array(lambda array: array[moved], step.next_obs),
    )


def _stacked(observations: list[Array]) -> Array:
    """W times [N, …] -> [W, N, …]"""
    named = [each for each in observations if isinstance(each, dict)]
    if named:
        return {key: np.stack([each[key] for each in named]) for key in named[0]}
    return np.stack([each for each in observations if not isinstance(each, dict)])


def _row_of(observations: Array, row: int) -> Array:
    """[W, N, …] -> [N, …]"""
    return map_array(lambda array: array[row], observations)


def _gather(observations: list[Array], leaving: NDArray[np.bool_]) -> Array:
    """The observations that leave the window, oldest first.  W times [N, …] -> [M, …]"""
    named = [each for each in observations if isinstance(each, dict)]
    if named:
        return {key: _rows([each[key] for each in named], leaving) for key in named[0]}
    return _rows([each for each in observations if not isinstance(each, dict)], leaving)


def _rows(arrays: list[NDArray[Any]], leaving: NDArray[np.bool_]) -> NDArray[Any]:
    """W times [N, …] -> [M, …]"""
    return np.concatenate([each[rows] for each, rows in zip(arrays, leaving, strict=True)])
