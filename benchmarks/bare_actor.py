"""The baseline for sampling: one process that steps CartPole with as little work as possible.

Included: `gym.make`, a numpy forward pass of [256, 256] with batch size 1, an epsilon-greedy policy
with epsilon 0.05, five preallocated arrays. Not included: loading newer weights, checking values,
counting episodes, sending. The fixed weights are set by hand to balance the pole: long episodes
have fewer resets and hence more steps per second, so the baseline is strict. Does not import torch.
"""

from __future__ import annotations

import select
import sys
import time
from itertools import pairwise
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from benchmarks.table import Reading

CAPACITY = 100_000
GAMMA = 0.99
EPSILON = 0.05
LOOK_UP_STEPS = 256  # steps between two readings of the clock
Weights = list[tuple[NDArray[np.float32], NDArray[np.float32]]]


class BareActor:
    """An actor that stores its transitions in its own ring."""

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)
        self._weights = _balancing_weights(self._rng)
        self._env = gymnasium.make("CartPole-v1")
        self._obs: NDArray[np.float32] = self._env.reset(seed=seed)[0]
        self._stored_obs = np.zeros((CAPACITY, 4), np.float32)
        self._stored_next_obs = np.zeros((CAPACITY, 4), np.float32)
        self._stored_action = np.zeros(CAPACITY, np.int64)
        self._stored_reward = np.zeros(CAPACITY, np.float32)
        self._stored_discount = np.zeros(CAPACITY, np.float32)
        self.steps = 0

    def step(self) -> None:
        """Takes one step and stores it."""
        action = self._act()
        next_obs, reward, terminated, truncated, _ = self._env.step(action)
        row = self.steps % CAPACITY
        self._stored_obs[row] = self._obs
        self._stored_next_obs[row] = next_obs
        self._stored_action[row] = action
        self._stored_reward[row] = reward
        self._stored_discount[row] = 0.0 if terminated else GAMMA
        self._obs = self._env.reset()[0] if terminated or truncated else next_obs
        self.steps += 1

    def _act(self) -> int:
        if self._rng.random() < EPSILON:
            return int(self._rng.integers(2))
        values: NDArray[Any] = self._obs
        *hidden, (last_weight, last_bias) = self._weights
        for weight, bias in hidden:
            values = values.dot(weight)
            values += bias
            np.maximum(values, 0, out=values)
        values = values.dot(last_weight)
        values += last_bias
        return int(values.argmax())


def _balancing_weights(rng: np.random.Generator) -> Weights:
    """Returns weights whose units 0 and 1 measure the pole's lean; the others only cost time."""
    sizes = (4, 256, 256, 2)
    weights: Weights = [
        (rng.normal(0, 0.05, shape).astype(np.float32), np.zeros(shape[1], np.float32))
        for shape in pairwise(sizes)
    ]
    (first, _), (second, _), (last, _) = weights
    lean = np.array([0.0, 0.1, 1.0, 0.5], np.float32)  # position, velocity, angle, angular velocity
    first[:, 0], first[:, 1] = lean, -lean
    second[:, :2] = 0.0
    second[0, 0] = second[1, 1] = 1.0
    last[:] = 0.0
    last[0, 1] = last[1, 0] = 1.0  # push to the side to which the pole leans
    return weights


def measure(seed: int, seconds: float | None) -> Reading:
    """Measures samples per second and CPU time per sample, for `seconds` seconds.

    If `seconds` is None, measures until standard input is closed.
    """
    actor = BareActor(seed)
    for _ in range(LOOK_UP_STEPS):  # warms up threads, caches and allocators
        actor.step()
    settled, began_s, cpu_began_s = actor.steps, time.perf_counter(), time.process_time()
    print("ready", flush=True)
    while not _is_over(began_s, seconds):
        for _ in range(LOOK_UP_STEPS):
            actor.step()
    elapsed_s, cpu_s = time.perf_counter() - began_s, time.process_time() - cpu_began_s
    samples = actor.steps - settled
    return {"samples_per_s": samples / elapsed_s, "actors_us": 1e6 * cpu_s / samples}


def _is_over(began_s: float, seconds: float | None) -> bool:
    if seconds is None:
        return bool(select.select([sys.stdin], [], [], 0)[0])
    return time.perf_counter() - began_s >= seconds
