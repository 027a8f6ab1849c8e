"""A paddle that catches a falling ball, as small images like those of MinAtar."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

BALL, PADDLE = 0, 1  # channels of the image
MOVES = (-1, 0, 1)  # of the paddle; positive is right


class Catch(gym.Env[NDArray[Any], np.int64]):
    """An episode is one falling ball; the reward at its end is 1 for a caught ball, else -1.

    Observations are `bool` or `uint8`, [side, side, 2], or [2, side, side] if `first`. Pixels are 0
    or `high`.
    """

    def __init__(
        self,
        dtype: str = "bool",
        side: int = 10,
        high: int = 1,
        first: bool = False,
        render_mode: str | None = None,
    ) -> None:
        self.render_mode = render_mode
        self._side, self._high, self._first = side, high, first
        shape = (2, side, side) if first else (side, side, 2)
        self.observation_space = spaces.Box(0, high, shape, np.dtype(dtype).type)
        self.action_space = spaces.Discrete(len(MOVES))
        self._row = self._ball = self._paddle = 0

    def _seen(self) -> NDArray[Any]:
        image = np.zeros((self._side, self._side, 2), self.observation_space.dtype)
        image[self._row, self._ball, BALL] = self._high
        image[-1, self._paddle, PADDLE] = self._high
        return image.transpose(2, 0, 1) if self._first else image

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[Any], dict[str, Any]]:
        super().reset(seed=seed, options=options)
        self._row = 0
        self._ball, self._paddle = self.np_random.integers(self._side, size=2).tolist()
        return self._seen(), {}

    def step(self, action: np.int64) -> tuple[NDArray[Any], float, bool, bool, dict[str, Any]]:
        self._row += 1
        self._paddle = min(max(self._paddle + MOVES[action], 0), self._side - 1)
        ended = self._row == self._side - 1
        reward = (1.0 if self._ball == self._paddle else -1.0) if ended else 0.0
        return self._seen(), reward, ended, False, {}


gym.register("Catch-v0", Catch, max_episode_steps=100)
