"""A pendulum whose process dies once. It travels to the nodes of a cluster, so it imports no other
helper of tests."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import gymnasium as gym
from gymnasium.envs.classic_control.pendulum import PendulumEnv

DIES_AT = 30


class DiesOnce(PendulumEnv):
    """Takes the file away and kills its process, where the file is there."""

    def __init__(self, file: str, render_mode: str | None = None) -> None:
        super().__init__(render_mode)
        self.file = Path(file)
        self.steps = 0

    def step(self, action: Any) -> Any:
        self.steps += 1
        if self.steps == DIES_AT and self.file.exists():
            self.file.unlink(missing_ok=True)
            os.kill(os.getpid(), signal.SIGKILL)
        return super().step(action)


gym.register("DiesOnce-v0", DiesOnce, max_episode_steps=200)
