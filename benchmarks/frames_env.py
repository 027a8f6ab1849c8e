"""An environment with large observations and no other cost: `benchmarks.frames_env:Frames-v0`."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

SHAPE = (84, 84, 4)  # four grey frames of Atari
EPISODE_STEPS = 1_000
FRAMES = 64  # number of different frames; drawing new ones would cost more than the rest
Observation = NDArray[np.uint8]


class Frames(gymnasium.Env[Observation, np.int64]):
    """An environment that shows a random one of a few frames; rewards do not depend on it."""

    def __init__(self) -> None:
        self.observation_space = gymnasium.spaces.Box(0, 255, SHAPE, np.uint8)
        self.action_space = gymnasium.spaces.Discrete(4)
        self._frames = np.random.default_rng(0).integers(0, 256, (FRAMES, *SHAPE), np.uint8)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        super().reset(seed=seed, options=options)
        return self._observation(), {}

    def step(self, action: np.int64) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        return self._observation(), float(action) / 4, False, False, {}

    def _observation(self) -> Observation:
        frame: Observation = self._frames[self.np_random.integers(FRAMES)]
        return frame


gymnasium.register("Frames-v0", entry_point=f"{__name__}:Frames", max_episode_steps=EPISODE_STEPS)
