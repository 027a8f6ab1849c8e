"""Gymnasium environments that misbehave at a given step: `imports=[unruly]`."""

from __future__ import annotations

import ctypes
import os
import re
import signal
import threading
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

EPISODE_STEPS = 20
NEVER = 1_000_000_000

Obs = NDArray[np.float32]
Answer = tuple[Any, float, bool, bool, dict[str, Any]]


class Calm(gym.Env[Obs, int]):
    """An environment with episodes of 20 steps; calls `go_wrong` once, at step `at` in total."""

    observation_space = gym.spaces.Box(-1, 1, (3,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def __init__(self, at: int = NEVER, render_mode: str | None = None) -> None:
        self.at = at
        self.render_mode = render_mode
        self.steps = 0
        self.steps_of_episode = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed, options=options)
        self.steps_of_episode = 0
        return self.observe(), {}

    def step(self, action: Any) -> Answer:
        del action
        self.steps += 1
        self.steps_of_episode += 1
        answer = (self.observe(), 1.0, self.steps_of_episode >= EPISODE_STEPS, False, {})
        return self.go_wrong(answer) if self.steps == self.at else answer

    def observe(self) -> Any:
        return self.np_random.uniform(-1, 1, 3).astype(np.float32)

    def go_wrong(self, answer: Answer) -> Answer:
        return answer


class Raises(Calm):
    """An environment whose step raises an exception."""

    def go_wrong(self, answer: Answer) -> Answer:
        del answer
        raise RuntimeError(f"the simulator exploded after {self.steps} steps")


class Greedy(Calm):
    """An environment that allocates more memory than any machine has."""

    def __init__(self, at: int = NEVER, born: bool = False, render_mode: str | None = None) -> None:
        super().__init__(at, render_mode)
        if born:
            np.empty(10**16)

    def go_wrong(self, answer: Answer) -> Answer:
        np.empty(10**16)
        return answer


class Vast(Calm):
    """An environment with discrete spaces of any size."""

    def __init__(
        self, states: int = 4, actions: int = 2, parts: int = 1, render_mode: str | None = None
    ) -> None:
        super().__init__(NEVER, render_mode)
        self.observation_space = (  # type: ignore[assignment]
            gym.spaces.Discrete(states)
            if parts == 1
            else gym.spaces.MultiDiscrete([states] * parts)
        )
        self.action_space = gym.spaces.Discrete(actions)

    def observe(self) -> Any:
        return self.observation_space.sample()


class Undefined(Calm):
    """An environment that returns a NaN in an observation."""

    def go_wrong(self, answer: Answer) -> Answer:
        return (np.array([0.5, np.nan, 0.5], np.float32), *answer[1:])


class Wrong(Calm):
    """An environment whose step returns the values in `what` (`observation`, `reward`, …).

    With `rooms` the observation is discrete, with 5 values.
    """

    def __init__(
        self,
        what: dict[str, Any] | None = None,
        rooms: bool = False,
        at: int = NEVER,
        render_mode: str | None = None,
    ) -> None:
        super().__init__(at, render_mode)
        self.what = what or {}
        if rooms:
            self.observation_space = gym.spaces.Discrete(5)  # type: ignore[assignment]

    def observe(self) -> Any:
        if isinstance(self.observation_space, gym.spaces.Discrete):
            return self.np_random.integers(5)
        return super().observe()

    def go_wrong(self, answer: Answer) -> Any:
        names = ("observation", "reward", "terminated", "truncated", "told")
        return tuple((dict(zip(names, answer, strict=True)) | self.what).values())


class Blocks(Calm):
    """An environment that creates the file `marker` and then blocks forever."""

    def __init__(
        self, at: int = NEVER, marker: str | None = None, render_mode: str | None = None
    ) -> None:
        super().__init__(at, render_mode)
        self.marker = marker

    def go_wrong(self, answer: Answer) -> Answer:
        if self.marker is not None:
            Path(self.marker).touch()
        threading.Event().wait()  # THE LINE THAT BLOCKS
        return answer


class Holds(Blocks):
    """An environment that never releases the interpreter lock, so that no other thread can run."""

    def go_wrong(self, answer: Answer) -> Answer:
        assert self.marker
        Path(self.marker).touch()
        re.match(r"(a+)+$", "a" * 60 + "b")  # THE LINE THAT HOLDS
        return answer


class Leaves(Calm):
    """An environment that exits its process silently with status 0."""

    def go_wrong(self, answer: Answer) -> Answer:
        os._exit(0)
        return answer


class Signals(Calm):
    """An environment that sends a signal to its own process."""

    def __init__(self, signum: int, at: int = NEVER, render_mode: str | None = None) -> None:
        super().__init__(at, render_mode)
        self.signum = signum

    def go_wrong(self, answer: Answer) -> Answer:
        os.kill(os.getpid(), signal.Signals(self.signum))
        return answer


class Solves(Calm):
    """An environment that disables SIGINT at every step, as some solvers in C do."""

    def step(self, action: Any) -> Answer:
        for _ in range(50):
            ctypes.CDLL(None).signal(signal.SIGINT, ctypes.c_void_p(signal.SIG_IGN))
            threading.Event().wait(0.0001)
        return super().step(action)


class Prints(Calm):
    """An environment that prints directly to file descriptors, as a simulator in C does."""

    def go_wrong(self, answer: Answer) -> Answer:
        for descriptor in (1, 2):
            os.write(descriptor, b"the simulator prints\n")
        return answer


class Removes(Calm):
    """An environment that removes the current directory."""

    def go_wrong(self, answer: Answer) -> Answer:
        Path.cwd().rmdir()
        return answer


class NeedsFile(Calm):
    """An environment that raises while `file` exists, so that a test can remove the cause."""

    def __init__(self, file: str, at: int = 60, render_mode: str | None = None) -> None:
        super().__init__(at, render_mode)
        self.file = file

    def step(self, action: Any) -> Answer:
        if self.steps >= self.at and Path(self.file).exists():
            raise RuntimeError(f"{self.file} is in the way")
        return super().step(action)


class Slow(Calm):
    """An environment whose step takes 10 ms, for runs that only wait to be interrupted."""

    def step(self, action: Any) -> Answer:
        threading.Event().wait(0.01)
        return super().step(action)


class Shows(Calm):
    """An environment that counts its frames and stores the seeds of shown episodes in `opened`."""

    metadata = {"render_modes": ["human"]}  # noqa: RUF012 - as Gymnasium declares it
    drawn = 0
    opened: list[int | None] = []  # noqa: RUF012 - shared on purpose

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        if self.render_mode == "human":
            Shows.opened.append(seed)
        return super().reset(seed=seed, options=options)

    def step(self, action: Any) -> Answer:
        self.render()
        return super().step(action)

    def render(self) -> None:
        if self.render_mode == "human":
            Shows.drawn += 1


class FromOne(Calm):
    """An environment that accepts only the actions 1 and 2, of the right type."""

    action_space = gym.spaces.Discrete(2, start=1)

    def step(self, action: Any) -> Answer:
        assert self.action_space.contains(action), f"no action: {action!r}"
        return super().step(action)


class Named(FromOne):
    """An environment with dict observations."""

    observation_space = gym.spaces.Dict(  # type: ignore[assignment]
        {"place": gym.spaces.Box(-1, 1, (3,), np.float64), "room": gym.spaces.Discrete(4)}
    )

    def observe(self) -> Any:
        place = self.np_random.uniform(-1, 1, 3)
        return {"place": place, "room": int(self.np_random.integers(4))}


for _env in (
    Calm, Raises, Undefined, Wrong, Blocks, Holds, Leaves, Signals, Solves, Prints, Removes,
    NeedsFile, Slow, Shows, FromOne, Named, Greedy, Vast,
):  # fmt: skip
    gym.register(f"{_env.__name__}-v0", _env)
