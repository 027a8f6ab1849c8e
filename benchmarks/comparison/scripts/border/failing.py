"""CartPole that fails in the job with seed 1 while the variable FAILS is 1."""

import os

import gymnasium as gym
from gymnasium.envs.classic_control import CartPoleEnv


class Failing(CartPoleEnv):
    def __init__(self, number=0, render_mode=None):
        super().__init__(render_mode=render_mode)
        self.number = number

    def step(self, action):
        if self.number == 1 and os.environ.get("FAILS") == "1":
            raise RuntimeError("the simulator has no licence")
        return super().step(action)


gym.register("Failing-v0", Failing, max_episode_steps=500)
