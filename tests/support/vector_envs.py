"""A deterministic environment that can be computed by hand, and vector environments."""

# ruff: noqa: ARG002 - only the names of the arguments matter

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv
from gymnasium.vector.utils import batch_space
from gymnasium.wrappers import TimeLimit

LANES = 4  # environments an action can address
NAMED = spaces.Dict(
    z=spaces.Box(0, 255, (2, 2), np.uint8),
    a=spaces.Discrete(1000, start=5),
    m=spaces.MultiDiscrete([1000, 3], start=[0, -1]),
    f=spaces.Box(-1e9, 1e9, (2,), np.float64),
)
PLAIN = spaces.Box(-1e9, 1e9, (2,), np.float32)


class Climb(gym.Env[Any, Any]):
    """Action [lane, speed] climbs speed + 1 rungs; episode n ends at rung 3 + 2 * (n % 4).

    The observation is [episodes started, rung], the reward rung + (lane - 1) / 8. Every third
    episode is truncated at its end, the others terminate. Nothing is random.
    """

    def __init__(self, named: bool = False, mode: str = "", **_: Any) -> None:
        self.observation_space = NAMED if named else PLAIN
        self.action_space = spaces.MultiDiscrete([LANES, 2], start=[1, 0])
        self.named, self.episodes = named, 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed, options=options)
        self.episodes, self.rung = self.episodes + 1, 0
        return observed(self.episodes, self.rung, self.named), {}

    def step(self, action: Any) -> Any:
        assert self.action_space.contains(action)
        lane, speed = action.tolist()
        self.rung += speed + 1
        over = self.rung >= 3 + 2 * (self.episodes % 4)
        cut = over and self.episodes % 3 == 0
        pay = self.rung + (lane - 1) / 8
        return observed(self.episodes, self.rung, self.named), pay, over and not cut, cut, {}


def observed(episodes: int, rung: int, named: bool) -> Any:
    numbers = np.array([episodes, rung], np.float32)
    if not named:
        return numbers
    return {
        "z": np.full((2, 2), rung, np.uint8),
        "a": np.int64(episodes + 5),
        "m": np.array([rung, -1], np.int64),
        "f": numbers.astype(np.float64) / 3,
    }


def gymnasiums_own(
    num_envs: int, max_episode_steps: int | None = None, mode: str = "", named: bool = False
) -> SyncVectorEnv:
    """Gymnasium's own vector of `Climb`; it returns the same arrays at every step."""

    def single() -> Any:
        env = Climb(named)
        return env if max_episode_steps is None else TimeLimit(env, max_episode_steps)

    return SyncVectorEnv([single] * num_envs, copy=False, autoreset_mode=AutoresetMode(mode))


class Endless(VectorEnv[Any, Any, Any]):
    """A vector environment that observes step counts and ends episodes only at `length`."""

    metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}  # noqa: RUF012 - declared as in Gymnasium

    closings = 0

    def __init__(self, num_envs: int, shown: str = "", length: int = 3, **_: Any) -> None:
        self.num_envs, self.shown, self.length = num_envs, shown, length
        self.single_observation_space = spaces.Box(0, 1000, (1,), np.float64)
        self.single_action_space = spaces.Discrete(2)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.seeds: list[Any] = []

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        self.seeds.append(seed)
        self.t = np.arange(self.num_envs, dtype=np.float64)
        return self.t[:, None], {}

    def step(self, action: Any) -> Any:
        assert self.action_space.contains(action)
        begins = self.t == self.length
        self.t += 1
        self.t[begins] = 0
        over = self.t == self.length
        return self.t[:, None], np.ones(self.num_envs), over, np.zeros_like(over), {}

    def close_extras(self, **_: Any) -> None:
        self.closings += 1


class Alone(gym.Env[Any, Any]):
    """The single-environment version of `Endless`."""

    def __init__(self, shown: str = "", length: int = 3, only_single: int = 0) -> None:
        self.observation_space = spaces.Box(0, 1000, (1,), np.float64)
        self.action_space = spaces.Discrete(2)


class Unlimited(Endless):
    """An `Endless` whose constructor does not accept a time limit."""

    def __init__(self, num_envs: int, length: int = 3) -> None:
        super().__init__(num_envs, length=length)


class Bounded(Endless):
    """An `Endless` that accepts a time limit but ignores it."""

    def __init__(self, num_envs: int, max_episode_steps: int = 9, length: int = 3) -> None:
        super().__init__(num_envs, length=length)


class Tipping(Unlimited):
    """An `Unlimited` that returns meaningless flags and rewards in the step of a reset."""

    def step(self, action: Any) -> Any:
        begins = self.t == self.length
        obs, reward, over, cut, info = super().step(action)
        reward[begins] = np.nan
        return obs, reward, over | begins, cut | begins, info


class Silent(Endless):
    """An `Endless` that does not declare its autoreset mode."""

    metadata = {}  # noqa: RUF012


class Wider(Endless):
    """An `Endless` whose observation space differs from that of its single environment."""

    def __init__(self, num_envs: int) -> None:
        super().__init__(num_envs)
        self.single_observation_space = spaces.Box(0, 1, (1,), np.float64)


gym.register("border/Climb-v1", entry_point=Climb, vector_entry_point=gymnasiums_own)
gym.register(
    "border/ClimbLimited-v1",
    entry_point=Climb,
    vector_entry_point=gymnasiums_own,
    max_episode_steps=2,
)
for vector in (Endless, Unlimited, Tipping, Bounded, Silent, Wider):
    gym.register(f"border/{vector.__name__}-v1", entry_point=Alone, vector_entry_point=vector)
