"""An environment whose steps take time but no CPU: `benchmarks.sleeping_env:Sleeping-v0`."""

from __future__ import annotations

import time
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

STEP_S = 0.005
EPISODE_STEPS = 200
Observation = NDArray[np.float32]


class Sleeping(gymnasium.Env[Observation, np.int64]):
    """An environment that sleeps in each step, with spaces like CartPole's."""

    def __init__(self, step_s: float = STEP_S) -> None:
        self._step_s = step_s
        self.observation_space = gymnasium.spaces.Box(-1.0, 1.0, (4,), np.float32)
        self.action_space = gymnasium.spaces.Discrete(2)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        super().reset(seed=seed, options=options)
        return self._observation(), {}

    def step(self, action: np.int64) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        del action
        time.sleep(self._step_s)
        return self._observation(), 1.0, False, False, {}

    def _observation(self) -> Observation:
        return self.np_random.uniform(-1.0, 1.0, 4).astype(np.float32)


gymnasium.register(
    "Sleeping-v0", entry_point=f"{__name__}:Sleeping", max_episode_steps=EPISODE_STEPS
)


def measure(steps: int, step_s: float = STEP_S) -> dict[str, float]:
    """Measures how long a sleep of one step actually takes on an idle machine."""
    began_s = time.perf_counter()
    for _ in range(steps):
        time.sleep(step_s)
    return {"sleep_s": (time.perf_counter() - began_s) / steps}
