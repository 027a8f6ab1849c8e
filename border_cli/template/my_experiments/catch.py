"""Catch: a ball falls down a board, and a paddle on the last row must catch it.

Mnih et al. 2014, "Recurrent models of visual attention", section 4.2, in the variant of Osband et
al. 2020, "Behaviour suite for reinforcement learning".
"""

from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

Board = NDArray[np.float32]  # [rows, columns], 1 at the ball and at the paddle, else 0


class Catch(gym.Env[Board, np.int64]):
    """An episode ends when the ball lands, with a reward of 1 if it is caught and -1 if not."""

    def __init__(self, rows: int = 10, columns: int = 5) -> None:
        if rows < 2 or columns < 2:
            raise ValueError(f"rows and columns must be at least 2, got {rows} and {columns}")
        self.observation_space = gym.spaces.Box(0.0, 1.0, (rows, columns), np.float32)
        self.action_space = gym.spaces.Discrete(3)  # left, stay, right
        self._rows, self._columns = rows, columns

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Board, dict[str, Any]]:
        super().reset(seed=seed, options=options)  # seeds self.np_random
        self._ball = [0, int(self.np_random.integers(self._columns))]  # row, column
        self._paddle = self._columns // 2
        return self._board(), {}

    def step(self, action: np.int64) -> tuple[Board, float, bool, bool, dict[str, Any]]:
        self._paddle = min(max(self._paddle + int(action) - 1, 0), self._columns - 1)
        self._ball[0] += 1
        landed = self._ball[0] == self._rows - 1
        caught = self._ball[1] == self._paddle
        reward = (1.0 if caught else -1.0) if landed else 0.0
        return self._board(), reward, landed, False, {}

    def _board(self) -> Board:
        board = np.zeros((self._rows, self._columns), np.float32)
        board[self._ball[0], self._ball[1]] = 1.0
        board[-1, self._paddle] = 1.0
        return board


gym.register("Catch-v0", entry_point=f"{__name__}:Catch")
