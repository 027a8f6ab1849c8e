"""What it takes to return into the middle of an episode: its actions, its wrappers, the replay."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any, TypeAlias

import gymnasium as gym
import numpy as np
from gymnasium.wrappers import NormalizeObservation, NormalizeReward
from numpy.typing import NDArray

from border_cli.core.types import Array, Beat, State, leaves
from border_cli.env.answers import TERMINATED, TRUNCATED, as_flag, as_reward
from border_cli.env.construct import layers

TIDY_EVERY = 1024  # steps whose actions are kept between two calls of `tidy`

Normalizer: TypeAlias = NormalizeObservation[Any, Any, Any] | NormalizeReward[Any, Any]


class ReplayDiverged(Exception):
    """An episode went otherwise than it did before; says how."""


class ActionLog:
    """The actions of N running episodes, and the statistics with which their wrappers began.

    The environment appends to `recent` itself, because a call in every step would cost more than
    all the rest, and calls `tidy` every `TIDY_EVERY` entries.
    """

    def __init__(self, envs: Sequence[Any], *, length: list[int], lives: list[list[int]]) -> None:
        # The environment's own lists, only read: the lengths of the running episodes, and of what
        # they go on from.
        self._length, self._lives = length, lives
        self._normalizers = [normalizers(env) for env in envs]
        self.recent: list[NDArray[Any]] = []  # each [N] or [N, A]: the actions of one step
        self.clear()

    def clear(self) -> None:
        """No episode has begun yet."""
        self.recent.clear()
        self._statistics: list[list[State]] = [[] for _ in self._length]  # before the episode

    def episode_begins(self, i: int) -> None:
        """Keeps the statistics of the wrappers of environment i, before its reset."""
        if self._normalizers[i]:
            self._statistics[i] = statistics_of(self._normalizers[i])

    def tidy(self) -> None:
        """Drops actions of episodes that are over."""
        del self.recent[: max(0, len(self.recent) - max(self._counts()))]

    def _counts(self) -> list[int]:
        """The actions of each environment that `replay` needs."""
        return [n + sum(lives) for n, lives in zip(self._length, self._lives, strict=True)]

    def state_dict(self) -> State:
        """The actions and statistics from which `replay` starts."""
        steps, count = len(self.recent), len(self._length)
        # [T, N] or [T, N, A]; without any step the form of an action is not known, nor needed
        taken = _stacked(self.recent) if steps else np.empty((0, count), np.float32)
        return {
            # Each [length] or [length, A]
            "actions": [taken[steps - n :, i].copy() for i, n in enumerate(self._counts())],
            "learned": list(self._statistics),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores what `state_dict` returned; the environments are replayed afterwards."""
        self._statistics = list(state["learned"])
        actions: list[NDArray[Any]] = state["actions"]
        longest = max(actions, key=len)
        if not len(longest):
            return
        taken = np.zeros((len(longest), len(actions), *longest.shape[1:]), longest.dtype)
        for i, each in enumerate(actions):
            if len(each):
                taken[-len(each) :, i] = each
        self.recent[:] = taken

    def restore_statistics(self, i: int) -> None:
        """Sets the wrappers of environment i to the statistics with which its episode began."""
        load_statistics(self._normalizers[i], self._statistics[i])


def _stacked(actions: list[NDArray[Any]]) -> NDArray[Any]:
    """T times [N, …] -> [T, N, …], at a fifth of the time of `np.stack`."""
    return np.concatenate(actions).reshape(len(actions), *actions[0].shape)


def replay(
    env: Any,
    actions: Sequence[Any],
    *,
    seed: int,
    score: float,
    beat: Beat,
    lives: Sequence[int] = (),
) -> Any:
    """Plays an episode again, whose return was `score`; returns its last observation.

    `lives`: the lengths of the episodes that it goes on from, which have the first of the actions.
    Raises `ReplayDiverged` where it ends or pays otherwise, and whatever the environment raises.
    """
    total, ends = 0.0, set(accumulate(lives))
    observation, _ = env.reset(seed=seed)
    for count, action in enumerate(actions, start=1):
        observation, reward, terminated, truncated, _ = env.step(action)
        total += as_reward(reward)
        ended = as_flag(TERMINATED, terminated) or as_flag(TRUNCATED, truncated)
        if ended != (count in ends):
            how = "ended" if ended else "did not end"
            raise ReplayDiverged(f"the episode {how} after {count} of {len(actions)} steps")
        if ended:
            observation, _ = env.reset(seed=seed)
            total = 0.0
        beat()
    if np.float64(total).tobytes() != np.float64(score).tobytes():  # NaN equals NaN
        raise ReplayDiverged(f"its return is {total!r}, it was {score!r}")
    return observation


def require_same_row(i: int, now: Array, then: Array) -> None:
    """Raises `ReplayDiverged` where row i of two observations is not the same to the bit."""
    for mine, its in zip(leaves(now), leaves(then), strict=True):
        if mine.dtype != its.dtype or mine[i].tobytes() != its[i].tobytes():
            raise ReplayDiverged("the observation differs from the saved one")


def normalizers(env: gym.Env[Any, Any]) -> list[Normalizer]:
    """The wrappers around `env` that keep running statistics, the outermost first."""
    # By their classes: a look at vars(env) would make every step slower from then on, because
    # Python then keeps the attributes in a dictionary.
    return [
        each for each in layers(env) if isinstance(each, NormalizeObservation | NormalizeReward)
    ]


def statistics_of(wrappers: Sequence[Normalizer]) -> list[State]:
    """Copies of their statistics: these outlive episodes, so no replay restores them."""
    return [_state_of(each) for each in wrappers]


def _state_of(wrapper: Normalizer) -> State:
    statistics = _statistics(wrapper)
    state: State = {
        "mean": np.array(statistics.mean),
        "var": np.array(statistics.var),
        "count": float(statistics.count),
    }
    if isinstance(wrapper, NormalizeReward):  # its running return continues over a truncation
        state["discounted_reward"] = np.array(wrapper.discounted_reward)
    return state


def load_statistics(wrappers: Sequence[Normalizer], states: Sequence[Mapping[str, Any]]) -> None:
    """Sets them to what `statistics_of` returned."""
    for wrapper, state in zip(wrappers, states, strict=True):
        statistics = _statistics(wrapper)
        statistics.mean, statistics.var = np.array(state["mean"]), np.array(state["var"])
        statistics.count = state["count"]
        if isinstance(wrapper, NormalizeReward):
            wrapper.discounted_reward = np.array(state["discounted_reward"])


def _statistics(wrapper: Normalizer) -> Any:
    return wrapper.obs_rms if isinstance(wrapper, NormalizeObservation) else wrapper.return_rms
