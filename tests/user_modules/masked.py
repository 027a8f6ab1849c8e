"""Environments with masks of valid actions, which raise if an action is invalid.

A walk over numbered places with four actions: at place p, action p (modulo 4) stays, action p + 1
moves on, and the two others are invalid. The observation is the place, one-hot.
"""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

PLACES, ACTIONS, STEPS = 6, 4, 20


def mask_at(place: int) -> NDArray[np.int8]:
    """Returns the mask of a place; the last place ends the walk and has no valid action."""
    mask = np.zeros(ACTIONS, np.int8)
    mask[[place % ACTIONS, (place + 1) % ACTIONS]] = place < PLACES - 1
    return mask


class Strict(gym.Env[Any, Any]):
    """The walk, with its mask in `info` or, if `by_key`, in the observation; the end pays 1."""

    strict = True

    def __init__(self, by_key: bool = False, lost_at: int = -1, mask: Any = None) -> None:
        """`lost_at`: the place without a valid action; its mask is `mask`, or zeros by default."""
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
        masks = {"action_mask": mask}
        return ({"observation": place, **masks}, {}) if self.by_key else (place, masks)

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
    """A walk that accepts invalid actions and stays."""

    strict = False


class Pairs(Strict):
    """A walk with actions of two numbers; the second must be 1 at an odd place, else 0."""

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


for _env in (Strict, Lenient, Pairs):
    gym.register(f"masked/{_env.__name__}-v0", _env)
