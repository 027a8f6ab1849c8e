"""A falling dot that moves sideways, as small grey frames for frame stacking."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

SIDE = 12
STACK = [{"FrameStackObservation": {"stack_size": 4}}]


class Falling(gym.Env[NDArray[np.uint8], np.int64]):
    """The reward is 1 if the dot ends in the left half."""

    observation_space = spaces.Box(0, 255, (SIDE, SIDE), np.uint8)
    action_space = spaces.Discrete(2)

    def _seen(self) -> NDArray[np.uint8]:
        frame = np.zeros((SIDE, SIDE), np.uint8)
        frame[self._row, self._column] = 255
        return frame

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.uint8], dict[str, Any]]:
        super().reset(seed=seed)
        del options
        self._row, self._column = 0, int(self.np_random.integers(SIDE))
        return self._seen(), {}

    def step(self, action: np.int64) -> tuple[NDArray[np.uint8], float, bool, bool, dict[str, Any]]:
        self._column = (self._column + 2 * int(action) - 1) % SIDE
        self._row += 1
        ended = self._row == SIDE - 1
        return self._seen(), float(ended and self._column < SIDE // 2), ended, False, {}


gym.register("Falling-v0", entry_point=f"{__name__}:Falling")
