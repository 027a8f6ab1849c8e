"""A single environment that anyone can follow by hand, and vector environments of it."""

# ruff: noqa: ARG002 - the names of arguments are what is looked at

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv
from gymnasium.vector.utils import batch_space
from gymnasium.wrappers import TimeLimit

LANES = 4  # environments that an action can name
NAMED = spaces.Dict(
    z=spaces.Box(0, 255, (2, 2), np.uint8),
    a=spaces.Discrete(1000, start=5),
    m=spaces.MultiDiscrete([1000, 3], start=[0, -1]),
    f=spaces.Box(-1e9, 1e9, (2,), np.float64),
)
PLAIN = spaces.Box(-1e9, 1e9, (2,), np.float32)


class Climb(gym.Env[Any, Any]):
    """Action [lane, speed] climbs speed + 1 rungs; episode n ends at rung 3 + 2 * (n % 4).

    Observes how many episodes began and the rung; pays rung + lane / 8. Every third episode is
    cut off at its end, the others terminate. No chance is involved.
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
    """Gymnasium's vector of `Climb` in any mode; it gives the same arrays out again and again."""

    def single() -> Any:
        env = Climb(named)
        return env if max_episode_steps is None else TimeLimit(env, max_episode_steps)

    return SyncVectorEnv([single] * num_envs, copy=False, autoreset_mode=AutoresetMode(mode))


class Endless(VectorEnv[Any, Any, Any]):
    """One number per environment: its steps. Ends nothing by itself but at `length`."""

    metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}  # noqa: RUF012 - as Gymnasium has it

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
    """The single environment of `Endless`."""

    def __init__(self, shown: str = "", length: int = 3, only_single: int = 0) -> None:
        self.observation_space = spaces.Box(0, 1000, (1,), np.float64)
        self.action_space = spaces.Discrete(2)


class Unlimited(Endless):
    """Takes no time limit."""

    def __init__(self, num_envs: int, length: int = 3) -> None:
        super().__init__(num_envs, length=length)


class Bounded(Endless):
    """Says that it takes a time limit, and ends nothing there."""

    def __init__(self, num_envs: int, max_episode_steps: int = 9, length: int = 3) -> None:
        super().__init__(num_envs, length=length)


class Tipping(Unlimited):
    """Flags and pays in the step of a reset what means nothing."""

    def step(self, action: Any) -> Any:
        begins = self.t == self.length
        obs, reward, over, cut, told = super().step(action)
        reward[begins] = np.nan
        return obs, reward, over | begins, cut | begins, told


class Silent(Endless):
    """Does not tell its mode."""

    metadata = {}  # noqa: RUF012


class Wider(Endless):
    """Observes something else than its single environment."""

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
