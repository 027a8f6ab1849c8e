"""The episodes that run now: their seeds, and the way back into the middle of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from border_cli.core.seeding import derived_seed
from border_cli.core.types import Array, Beat, State, leaves
from border_cli.env.answers import as_flag, as_reward
from border_cli.env.normalizers import learned, normalizers, relearn
from border_cli.env.spaces import ActionReader

RECENT = 1024  # steps whose actions are kept as they came, until they are looked through


class Strayed(Exception):
    """An episode went otherwise than it did before; says how."""


class Episodes:
    """What N environments go through, step by step; owned by whoever steps them.

    That one adds to `score`, `length` and `recent`, which stay the same lists, itself: a call more
    in every step would cost more than all the rest. `tidy` follows the `RECENT`th entry.
    """

    def __init__(self, envs: Sequence[Any], *, first: int, read: ActionReader) -> None:
        self._envs = envs
        self._first = first
        self._read = read
        self._normalizers = [normalizers(env) for env in envs]
        self.score = [0.0] * len(envs)
        self.length = [0] * len(envs)
        self.recent: list[NDArray[Any]] = []  # each [N] or [N, A]: the actions of one step
        self.clear(seed=0)

    def clear(self, seed: int) -> None:
        """No episode has begun yet; those to come belong to this seed."""
        count = len(self._envs)
        self._seed = seed
        self.number = [0] * count  # how many of this seed have begun, less one
        self.score[:] = [0.0] * count
        self.length[:] = [0] * count
        self.recent.clear()
        self._packed: list[NDArray[Any]] = []  # each [T, N] or [T, N, A]: of the steps before
        self._learned: list[list[State]] = [[] for _ in range(count)]  # before the episode

    def begin(self, i: int) -> Any:
        """Starts the episode of environment i that `number` says; returns its first observation."""
        if self._normalizers[i]:
            self._learned[i] = learned(self._normalizers[i])
        self.score[i] = 0.0
        self.length[i] = 0
        observation, _ = self._envs[i].reset(seed=self._seed_of(i))
        return observation

    def _seed_of(self, i: int) -> int:
        return derived_seed(self._seed, self._first + i, self.number[i])

    def tidy(self) -> None:
        """Drops actions of episodes that are over, and packs the others where they are many."""
        longest = max(self.length)
        if 2 * longest <= RECENT:
            del self.recent[: len(self.recent) - longest]
            self._packed.clear()
            return
        self._packed.append(_stacked(self.recent))
        self.recent.clear()
        steps = sum(map(len, self._packed))
        while steps - len(self._packed[0]) >= longest:
            steps -= len(self._packed.pop(0))

    def state_dict(self) -> State:
        """What `retrace` needs."""
        parts = [*self._packed, *([_stacked(self.recent)] if self.recent else [])]
        steps = sum(map(len, parts))
        # [T, N] or [T, N, A]; without any step the form of an action is not known, nor needed
        taken = np.concatenate(parts) if parts else np.empty((0, len(self._envs)), np.float32)
        return {
            "episodes": list(self.number),
            # Each [length] or [length, A]
            "actions": [taken[steps - n :, i].copy() for i, n in enumerate(self.length)],
            "scores": list(self.score),
            "learned": list(self._learned),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores the books; `retrace` brings the environments back."""
        self.number = list(state["episodes"])
        self.score[:] = state["scores"]
        self._learned = list(state["learned"])
        actions: list[NDArray[Any]] = state["actions"]
        self.length[:] = [len(each) for each in actions]
        longest = max(actions, key=len)
        if not len(longest):
            return
        taken = np.zeros((len(longest), len(actions), *longest.shape[1:]), longest.dtype)
        for i, each in enumerate(actions):
            if len(each):
                taken[-len(each) :, i] = each
        self._packed = [taken]

    def retrace(self, i: int, actions: NDArray[Any], beat: Beat) -> Any:
        """Plays the running episode of environment i again; returns its last observation.

        Raises `Strayed` where it ends or pays otherwise, and whatever the environment raises.
        """
        relearn(self._normalizers[i], self._learned[i])
        env, score = self._envs[i], 0.0
        observation, _ = env.reset(seed=self._seed_of(i))
        for count, action in enumerate(self._read(actions), start=1):
            observation, reward, terminated, truncated, _ = env.step(action)
            score += as_reward(reward)
            if as_flag("terminated", terminated) or as_flag("truncated", truncated):
                raise Strayed(f"the episode ended after {count} of {len(actions)} steps")
            beat()
        if np.float64(score).tobytes() != np.float64(self.score[i]).tobytes():  # NaN equals NaN
            raise Strayed(f"its return is {score!r}, it was {self.score[i]!r}")
        return observation


def _stacked(actions: list[NDArray[Any]]) -> NDArray[Any]:
    """T times [N, …] -> [T, N, …], at a fifth of the time of `np.stack`."""
    return np.concatenate(actions).reshape(len(actions), *actions[0].shape)


def require_same_row(i: int, now: Array, then: Array) -> None:
    """Raises `Strayed` where row i of two observations is not the same to the bit."""
    for mine, its in zip(leaves(now), leaves(then), strict=True):
        if mine.dtype != its.dtype or mine[i].tobytes() != its[i].tobytes():
            raise Strayed("the observation differs from the saved one")
