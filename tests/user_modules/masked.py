"""Environments that raise where an invalid action is taken.

A walk over places: of four actions the one of the place stays, the next one goes on, and the two
others are invalid. The observation is the place, one-hot.
"""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

PLACES, ACTIONS, STEPS = 6, 4, 20


def mask_at(place: int) -> NDArray[np.int8]:
    """Of a place; the last one, where the walk is over, has no valid action."""
    mask = np.zeros(ACTIONS, np.int8)
    mask[[place % ACTIONS, (place + 1) % ACTIONS]] = place < PLACES - 1
    return mask


class Strict(gym.Env[Any, Any]):
    """The mask in `info`, or with `by_key` in the observation. Pays at the last place."""

    strict = True

    def __init__(self, by_key: bool = False, lost_at: int = -1, mask: Any = None) -> None:
        """`lost_at`: the place where there is no valid action, or the `mask` if there is one."""
        self.by_key, self.lost_at, self.wrong = by_key, lost_at, mask
        self.action_space = spaces.Discrete(ACTIONS)
        self.observation_space = spaces.Box(0, 1, (PLACES,), np.float32)
        if by_key:
            mask_space = spaces.Box(0, 1, (ACTIONS,), np.int8)
            parts = {"observation": self.observation_space, "action_mask": mask_space}
            self.observation_space = spaces.Dict(parts)

    def _seen(self) -> Any:
        place, mask = np.eye(PLACES, dtype=np.float32)[self.place], mask_at(self.place)
        if self.place == self.lost_at:
            mask = np.zeros_like(mask) if self.wrong is None else self.wrong
        named = {"action_mask": mask}
        return ({"observation": place, **named}, {}) if self.by_key else (place, named)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        del options
        super().reset(seed=seed)
        self.place = self.steps = 0
        return self._seen()

    def step(self, action: Any) -> Any:
        if self.strict and not mask_at(self.place)[action]:
            raise RuntimeError(f"action {action} is invalid at {self.place}")
        self.steps += 1
        self.place += int(action == (self.place + 1) % ACTIONS)
        seen, info = self._seen()
        over = self.place == PLACES - 1
        return seen, float(over), over, self.steps == STEPS, info


class Lenient(Strict):
    """Takes invalid actions, and stays."""

    strict = False


class Pairs(Strict):
    """Of two choices the second must be whether the place is odd."""

    def __init__(self) -> None:
        super().__init__()
        self.action_space = spaces.MultiDiscrete([ACTIONS, 2])

    def _seen(self) -> Any:
        seen, info = super()._seen()
        return seen, {
            "action_mask": (info["action_mask"], np.eye(2, dtype=np.int8)[self.place % 2])
        }

    def step(self, action: Any) -> Any:
        first, second = action
        if second != self.place % 2:
            raise RuntimeError(f"action {action} is invalid at {self.place}")
        return super().step(first)


for _each in (Strict, Lenient, Pairs):
    gym.register(f"masked/{_each.__name__}-v0", _each)
