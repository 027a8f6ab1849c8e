"""Small environments with action masks: `benchmarks.masked_env:Masked-v0` with one choice per
action, `benchmarks.masked_env:MaskedPairs-v0` with two."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

PLACES = 8
EPISODE_STEPS = 20
Observation = dict[str, NDArray[Any]]


class Masked(gymnasium.Env[Observation, Any]):
    """A walk on a ring of places. The reward is the fraction of choices that match the place."""

    def __init__(self, choices: tuple[int, ...] = (4,)) -> None:
        self.observation_space = gymnasium.spaces.Dict(
            observation=gymnasium.spaces.Box(0, 1, (PLACES,), np.float32),
            action_mask=gymnasium.spaces.Box(0, 1, (sum(choices),), np.int8),
        )
        self.action_space: gymnasium.Space[Any] = gymnasium.spaces.Discrete(choices[0])
        if len(choices) > 1:
            self.action_space = gymnasium.spaces.MultiDiscrete(choices)
        self._choices = choices
        self._place = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        super().reset(seed=seed, options=options)
        self._place = int(self.np_random.integers(PLACES))
        return self._observation(), {}

    def step(self, action: Any) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        numbers = np.atleast_1d(action)
        reward = float(np.mean(numbers == self._place % np.array(self._choices)))
        self._place = (self._place + 1 + int(numbers.sum())) % PLACES
        return self._observation(), reward, False, False, {}

    def _observation(self) -> Observation:
        masks = []
        for number in self._choices:
            mask = np.ones(number, np.int8)
            mask[(self._place + 1) % number] = 0
            masks.append(mask)
        place = np.eye(PLACES, dtype=np.float32)[self._place]
        return {"observation": place, "action_mask": np.concatenate(masks)}


gymnasium.register("Masked-v0", entry_point=f"{__name__}:Masked", max_episode_steps=EPISODE_STEPS)
gymnasium.register(
    "MaskedPairs-v0",
    entry_point=f"{__name__}:Masked",
    max_episode_steps=EPISODE_STEPS,
    kwargs={"choices": (4, 2)},
)
