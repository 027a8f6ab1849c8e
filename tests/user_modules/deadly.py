"""A pendulum that kills its process once. The module is sent to the nodes of a cluster, so it must
not import other test modules."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import gymnasium as gym
from gymnasium.envs.classic_control.pendulum import PendulumEnv

DIES_AT = 30


class DiesOnce(PendulumEnv):
    """A pendulum that, if `file` exists, removes it and dies, or raises if it contains `raise`."""

    def __init__(self, file: str, render_mode: str | None = None) -> None:
        super().__init__(render_mode)
        self.file = Path(file)
        self.steps = 0

    def reset(self, **options: Any) -> Any:
        self.steps = 0
        return super().reset(**options)

    def step(self, action: Any) -> Any:
        self.steps += 1
        if self.steps == DIES_AT:
            self._obey()
        return super().step(action)

    def _obey(self) -> None:
        try:
            word = self.file.read_text()
            self.file.unlink()  # fails in all processes but one
        except FileNotFoundError:
            return
        if word == "raise":
            raise RuntimeError("the pendulum is stuck")
        os.kill(os.getpid(), signal.SIGKILL)


gym.register("DiesOnce-v0", DiesOnce, max_episode_steps=200)
