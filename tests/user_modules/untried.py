"""Gymnasium environments that are defective from the start: `imports=[untried]`."""

from __future__ import annotations

import sys
import threading
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
from unruly import NEVER, Answer, Calm


class FourValues(Calm):
    """An environment whose step returns four values, like old versions of Gym."""

    def step(self, action: Any) -> Any:
        observation, reward, terminated, truncated, info = super().step(action)
        return observation, reward, terminated or truncated, info


class Seedless(Calm):
    """An environment that cannot be seeded."""

    def reset(self, *, options: dict[str, Any] | None = None) -> Any:  # type: ignore[override]
        return super().reset(options=options)


class Misshapen(Calm):
    """An environment that observes two numbers but declares three."""

    def observe(self) -> Any:
        return np.zeros(2, np.float32)


class Exits(Calm):
    """An environment whose step calls `sys.exit`."""

    def step(self, action: Any) -> Answer:
        sys.exit(f"no such action: {type(action).__name__}")


class Breaks(Calm):
    """An environment whose step calls a function that raises."""

    def step(self, action: Any) -> Answer:
        return self.simulate(action)

    def simulate(self, action: Any) -> Answer:
        del action
        raise KeyError("joint_7")  # THE LINE THAT RAISES


class Unclosable(Calm):
    """An environment whose `close` raises."""

    def close(self) -> None:
        raise OSError("the server is gone")


class Hangs(Calm):
    """An environment that hangs in the methods named by `where`; `deaf` ignores interrupts."""

    metadata = {"render_modes": ["rgb_array"]}  # noqa: RUF012 - as Gymnasium declares it

    def __init__(self, where: str, deaf: bool = False, render_mode: str | None = None) -> None:
        super().__init__(render_mode=render_mode)
        self.where = where
        self.deaf = deaf
        self.called("its constructor")

    def called(self, what: str) -> None:
        while what in self.where:
            try:
                threading.Event().wait()  # THE LINE THAT HANGS
            except KeyboardInterrupt:
                if not self.deaf:
                    raise

    def reset(self, **options: Any) -> Any:
        self.called("reset")
        return super().reset(**options)

    def step(self, action: Any) -> Answer:
        self.called("step")
        return super().step(action)

    def render(self) -> Any:
        self.called("render")
        return np.zeros((8, 8, 3), np.uint8)

    def close(self) -> None:
        self.called("close")


class Counted(Calm):
    """An environment that counts its instances; the constructor raises after `most` of them."""

    made: ClassVar[int] = 0
    seeds: ClassVar[list[int | None]] = []

    def __init__(self, most: int = NEVER, render_mode: str | None = None) -> None:
        super().__init__(render_mode=render_mode)
        if Counted.made >= most:
            raise RuntimeError("no licence left")
        Counted.made += 1

    def reset(self, *, seed: int | None = None, **options: Any) -> Any:
        Counted.seeds.append(seed)
        return super().reset(seed=seed, **options)


class Single(Counted):
    """A simulator that allows only one open instance per port."""

    ports: ClassVar[set[int]] = set()

    def __init__(self, port: int = 1, render_mode: str | None = None) -> None:
        super().__init__(render_mode=render_mode)
        if port in self.ports:
            raise OSError("Address already in use")
        self.port = port
        self.ports.add(port)

    def close(self) -> None:
        self.ports.discard(self.port)


for _env in (
    Single, FourValues, Seedless, Misshapen, Exits, Breaks, Unclosable, Hangs, Counted,
):  # fmt: skip
    gym.register(f"{_env.__name__}-v0", _env)
