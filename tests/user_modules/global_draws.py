"""An environment that uses the global random generators of Python and NumPy, as many do."""

from __future__ import annotations

import random
from typing import Any

import gymnasium as gym
import numpy as np

GUESS = "border/Guess-v0"


class Guess(gym.Env[Any, Any]):
    """The reward is for guessing whether the observed number is above 0.5; ends at random.

    With `seeds`, `reset(seed=…)` seeds the global generators.
    """

    observation_space = gym.spaces.Box(-9, 9, (2,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def __init__(self, seeds: bool = False) -> None:
        self._seeds = seeds

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed, options=options)
        if self._seeds:
            random.seed(seed)
            np.random.seed(seed)
        return self._drawn(), {}

    def _drawn(self) -> Any:
        self._x = random.random()
        return np.array([self._x, np.random.normal()], np.float32)

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        reward = float(action == (self._x > 0.5)) + self._x
        return self._drawn(), reward, random.random() < 0.1, False, {}


gym.register(GUESS, entry_point=Guess, max_episode_steps=30)
