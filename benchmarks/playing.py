"""A bare loop that also acts and steps its environment: the baseline of a complete DQN."""

from __future__ import annotations

import time

import gymnasium
import numpy as np
from numpy.typing import NDArray

from benchmarks.bare import CAPACITY, GAMMA, ROW, BareLoop, now, speed_between
from benchmarks.table import Reading
from border_cli.nn.device import learner_thread

EPSILON_FINAL = 0.05
EPSILON_STEPS = 10_000  # env steps over which epsilon falls from 1, linearly


class PlayingLoop(BareLoop):
    """Acts in numpy on the torch network's own weights, without a copy."""

    def __init__(self, seed: int) -> None:
        ring = np.zeros(CAPACITY, ROW)
        super().__init__(ring, 0, seed=seed)
        self._columns = [ring[name] for name in ROW.names or ()]  # views
        arrays = [weight.detach().numpy() for weight in self.weights]
        self._layers = list(zip(arrays[::2], arrays[1::2], strict=True))
        self._env = gymnasium.make("CartPole-v1")
        self._obs: NDArray[np.float32] = self._env.reset(seed=seed)[0]
        self.env_steps = 0

    def play(self, epsilon: float) -> None:
        """Takes one env step and stores it in the ring."""
        explores = self.rng.random() < epsilon
        action = int(self.rng.integers(2)) if explores else self._greedy()
        next_obs, reward, terminated, truncated, _ = self._env.step(action)
        discount = 0.0 if terminated else GAMMA
        row = self.env_steps % CAPACITY
        values = (action, self._obs, next_obs, reward, discount)
        for stored, value in zip(self._columns, values, strict=True):
            stored[row] = value
        self._obs = self._env.reset()[0] if terminated or truncated else next_obs
        self.env_steps += 1
        self.rows = min(self.env_steps, CAPACITY)

    def _greedy(self) -> int:
        values = self._obs
        *hidden, (last_weight, last_bias) = self._layers
        for weight, bias in hidden:
            values = weight.dot(values)
            values += bias
            np.maximum(values, 0, out=values)
        return int((last_weight.dot(values) + last_bias).argmax())


def matched(seed: int, warm_up: int, settled: int, updates: int) -> Reading:
    """Makes one update per env step after a random warm-up; timed after `settled` updates."""
    began_s = time.perf_counter()
    with learner_thread(num_threads=1):
        loop = PlayingLoop(seed)
        for _ in range(warm_up):
            loop.play(1.0)
        began = now()
        for number in range(settled + updates):
            if number == settled:
                began = now()
            loop.play(max(EPSILON_FINAL, 1 - (1 - EPSILON_FINAL) * loop.env_steps / EPSILON_STEPS))
            loop.update()
        speed = speed_between(began, now(), updates)
    return {
        **speed._asdict(),
        "wall_s": time.perf_counter() - began_s,
        "updates": loop.updates,
        "samples": loop.env_steps,
    }


def first_update(seed: int, warm_up: int) -> Reading:
    """Returns the time of the first update, from `time.time`."""
    with learner_thread(num_threads=1):
        loop = PlayingLoop(seed)
        for _ in range(warm_up):
            loop.play(1.0)
        loop.update()
    return {"first_update_at_s": time.time()}
