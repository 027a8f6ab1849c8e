"""A corridor of the user's own: walk right to the end."""

import gymnasium as gym
import numpy as np


class Corridor(gym.Env):
    observation_space = gym.spaces.Box(0, 1, (1,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def __init__(self, length=10):
        self.length = length
        self.position = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed, options=options)
        self.position = 0
        return self._observation(), {}

    def step(self, action):
        self.position = max(0, self.position + (1 if action == 1 else -1))
        done = self.position >= self.length
        return self._observation(), -0.1 + done, done, False, {}

    def _observation(self):
        return np.array([self.position / self.length], np.float32)


gym.register("Corridor-v0", Corridor, max_episode_steps=100)
