"""Small environments with known observations and rewards; their records are cleared after tests."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces


class Counting(gym.Env[Any, Any]):
    """Observes [episodes, steps in this episode]; the reward of the n-th step is n."""

    made: ClassVar[list[Counting]] = []
    metadata: ClassVar[dict[str, Any]] = {"render_modes": ["human"]}

    def __init__(
        self,
        length: int = 3,
        cut: bool = False,
        render_mode: str | None = None,
        raise_at: int | None = None,
        forget: list[int] | None = None,
    ) -> None:
        if forget is not None:
            forget.clear()
        self.observation_space = spaces.Box(0, 1000, (2,), np.float32)
        self.action_space = spaces.Discrete(2)
        self.render_mode = render_mode
        self.length, self.cut, self.raise_at = length, cut, raise_at
        self.seeds: list[int] = []
        self.actions: list[Any] = []
        self.closed = 0
        self.made.append(self)

    def _observe(self) -> Any:
        return np.array([len(self.seeds), self.t], np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed, options=options)
        assert seed is not None
        self.seeds.append(seed)
        self.t = 0
        return self._observe(), {}

    def step(self, action: Any) -> Any:
        self.actions.append(action)
        self.t += 1
        if self.t == self.raise_at:
            raise OSError("the simulator fell over")
        over = self.t == self.length
        return self._observe(), float(self.t), over and not self.cut, over and self.cut, {}

    def close(self) -> None:
        self.closed += 1


class Spaced(Counting):
    """Has the spaces set by a test and returns `observations` in order."""

    observations: ClassVar[list[Any]] = []
    spaces: ClassVar[tuple[Any, Any]]

    def __init__(self) -> None:
        super().__init__(length=1000)
        self.observation_space, self.action_space = self.spaces

    def _observe(self) -> Any:
        return self.observations[self.t]


class Meeting(Counting):
    """Records whether another constructor runs at the same time."""

    barrier: ClassVar[threading.Barrier]
    met: ClassVar[list[bool]] = []

    def __init__(self) -> None:
        try:
            self.barrier.wait(timeout=0.2)
            self.met.append(True)
        except threading.BrokenBarrierError:
            self.met.append(False)
        super().__init__()


class Raising(gym.Env[Any, Any]):
    """Raises `error` when it is constructed."""

    error: ClassVar[Exception]

    def __init__(self, **_: Any) -> None:
        raise self.error


for env in (Counting, Spaced, Meeting, Raising):
    gym.register(f"border/{env.__name__}-v1", entry_point=env)
gym.register("border/Counting-v0", entry_point=Counting)
gym.register("border/Limited-v1", entry_point=Counting, max_episode_steps=2)
gym.register("border/Absent-v1", entry_point="no_such_package_of_ours.envs:Env")
gym.register("border/Broken-v1", entry_point="gymnasium.no_such_module:Env")


@pytest.fixture(autouse=True)
def _empty_records() -> Iterator[None]:
    yield
    Counting.made.clear()
    Meeting.met.clear()


@pytest.fixture
def counting() -> type[Counting]:
    return Counting


@pytest.fixture
def spaced() -> type[Spaced]:
    return Spaced


@pytest.fixture
def meeting() -> type[Meeting]:
    return Meeting


@pytest.fixture
def raising() -> type[Raising]:
    return Raising
