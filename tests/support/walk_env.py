"""A random walk pushed by its actions."""

from __future__ import annotations

from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
from gymnasium import spaces

ACTIONS: dict[str, gym.Space[Any]] = {
    "number": spaces.Discrete(3, start=-1),
    "numbers": spaces.MultiDiscrete([3, 4], start=[0, 2]),
    "vector": spaces.Box(-1, 1, (2,), np.float32),
}


class Walk(gym.Env[Any, Any]):
    """A random walk pushed by its actions; terminates far from the origin, after about 20 steps.

    It overwrites the actions it receives. `spoil(env)` is called before every step and may change
    state that a seeded reset does not restore.
    """

    spoil: ClassVar[Any] = None
    seeds: ClassVar[list[int]] = []
    closings: ClassVar[int] = 0

    def __init__(self, action: str = "number", named: bool = False) -> None:
        self.action_space = ACTIONS[action]
        place = spaces.Box(-np.inf, np.inf, (2,), np.float64)
        self.named = named
        self.observation_space = (
            spaces.Dict(place=place, count=spaces.Discrete(1000, start=7)) if named else place
        )
        self.broken = False

    def _observe(self) -> Any:
        return {"place": self.place, "count": self.t + 7} if self.named else self.place

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed, options=options)
        assert seed is not None
        self.seeds.append(seed)
        self.place, self.t = self.np_random.normal(size=2), 0
        return self._observe(), {}

    def step(self, action: Any) -> Any:
        assert self.action_space.contains(action)
        if type(self).spoil is not None:
            type(self).spoil(self)
        push = np.sum(action, dtype=np.float64)
        if isinstance(action, np.ndarray):
            action[:] = 0
        self.t += 1
        self.place = self.place + 0.1 * push + self.np_random.normal(size=2)
        far = bool(np.abs(self.place).max() > 6)
        return self._observe(), float(push + self.place[0]), far, False, {}

    def close(self) -> None:
        Walk.closings += 1


gym.register("border/Walk-v0", entry_point=Walk)
