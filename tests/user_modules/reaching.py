"""Goal environments: a point on a line must be moved to a goal on it.

An observation contains a random number per episode and the step number, so no two are equal.
"""

from __future__ import annotations

import threading
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
from gymnasium import spaces

NEAR = 0.1
STEPS = 10  # per episode


class Reach(gym.Env[Any, Any]):
    """A goal environment with reward 0 near the goal, else -1; never terminates."""

    metadata: ClassVar[dict[str, Any]] = {"render_modes": ["rgb_array"], "render_fps": 20}

    stops = False  # whether reaching the goal terminates the episode

    def __init__(
        self, render_mode: str | None = None, drawable: int = 1000, mode: str = ""
    ) -> None:
        """`drawable`: number of frames before `render` fails. `mode`: used by `many` only."""
        del mode
        self.render_mode = render_mode
        self.drawable = drawable
        goal = spaces.Box(-1.0, 1.0, (1,), np.float64)
        place = spaces.Box(-np.inf, np.inf, (2,), np.float64)
        parts = {"observation": place, "achieved_goal": goal, "desired_goal": goal}
        self.observation_space = spaces.Dict(parts)
        self.action_space = spaces.Box(-1.0, 1.0, (1,), np.float32)

    def observe(self) -> dict[str, Any]:
        return {
            "observation": np.array([self.episode, self.steps], np.float64),
            "achieved_goal": self.at.copy(),
            "desired_goal": self.goal.copy(),
        }

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        del options
        super().reset(seed=seed)
        self.steps = 0
        self.episode = self.np_random.uniform()
        self.at, self.goal = self.np_random.uniform(-1, 1, (2, 1))
        return self.observe(), {}

    def step(self, action: Any) -> Any:
        self.steps += 1
        self.at = np.clip(self.at + 0.4 * np.asarray(action, np.float64), -1, 1)
        reward = self.compute_reward(self.at, self.goal, {})
        near = reward == 0
        over = bool(near and self.stops)
        info = {"is_success": float(near), "distance": abs(self.at - self.goal), "text": "x"}
        return self.observe(), float(reward), over, self.steps >= STEPS, info

    def compute_reward(self, achieved: Any, desired: Any, info: Any) -> Any:
        del info
        return -(np.linalg.norm(achieved - desired, axis=-1) > NEAR).astype(np.float32)

    def render(self) -> Any:
        self.drawable -= 1
        if self.drawable < 0:
            raise RuntimeError("the display is gone")
        picture = np.zeros((60, 80, 3), np.uint8)
        x = int(39 + 38 * float(self.at[0]))
        picture[20:40, max(0, x - 3) : x + 3] = 255
        return picture


class Stop(Reach):
    """A `Reach` that terminates near the goal; `compute_terminated` accepts only single goals."""

    stops = True

    def compute_terminated(self, achieved: Any, desired: Any, info: Any) -> bool:
        del info
        return bool(np.linalg.norm(achieved - desired) <= NEAR)


class Mute(Reach):
    """A `Reach` without `compute_reward`."""

    compute_reward = None  # type: ignore[assignment]

    def __getattribute__(self, name: str) -> Any:
        if name == "compute_reward":
            raise AttributeError(name)
        return super().__getattribute__(name)

    def step(self, action: Any) -> Any:
        del action
        self.steps += 1
        return self.observe(), -1.0, False, self.steps >= STEPS, {}


class OneGoal(Reach):
    """A `Reach` whose `compute_reward` accepts only one pair of goals at a time."""

    def compute_reward(self, achieved: Any, desired: Any, info: Any) -> Any:
        del info
        return np.float32(-float(np.linalg.norm(achieved - desired) > NEAR))


class Informed(Reach):
    """A `Reach` whose `compute_reward` needs the `info` of the step for a batch of goals."""

    def compute_reward(self, achieved: Any, desired: Any, info: Any) -> Any:
        if np.ndim(achieved) > 1:
            achieved = info["position"]
        return super().compute_reward(achieved, desired, info)


class Odd(Reach):
    """A `Reach` whose `compute_reward` returns invalid values for a batch of goals, or hangs."""

    worth: ClassVar[dict[str, Any]] = {
        "none": None,
        "not a number": np.array([0, np.nan, 0]),
        "huge": np.full(3, 1e300),
    }

    def __init__(self, says: str, **settings: Any) -> None:
        super().__init__(**settings)
        self.says = says

    def compute_reward(self, achieved: Any, desired: Any, info: Any) -> Any:
        if np.ndim(achieved) == 1:
            return super().compute_reward(achieved, desired, info)
        if self.says == "nothing":
            threading.Event().wait()  # THE LINE THAT HANGS
        return self.worth[self.says]


def many(num_envs: int, mode: str) -> Any:
    """A vector implementation of `Reach`."""
    return gym.vector.SyncVectorEnv(
        [Reach] * num_envs, autoreset_mode=gym.vector.AutoresetMode(mode)
    )


gym.register("border/Many-v0", Reach, vector_entry_point=many)

for _env in (Reach, Stop, Mute, OneGoal, Informed, Odd):
    gym.register(f"border/{_env.__name__}-v0", _env)
