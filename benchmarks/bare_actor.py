"""The baseline of sampling: one process that only plays CartPole, with as little work as possible.

Included: `gym.make`, a numpy forward pass of [256, 256] at batch 1, epsilon-greedy at 0.05, five
preallocated arrays. Not included: loading newer weights, checking values, counting episodes,
sending. Its fixed weights are set by hand to balance the pole: long episodes have fewer resets and
so more steps per second, which makes a strict baseline. Does not import torch.
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
LOOK_UP_STEPS = 256  # steps between two looks at the clock
Weights = list[tuple[NDArray[np.float32], NDArray[np.float32]]]


class BareActor:
    """Plays into a ring of its own."""

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
        """One step, stored."""
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
    """Units 0 and 1 carry the lean of the pole to either side; the others are there to be paid."""
    sizes = (4, 256, 256, 2)
    weights: Weights = [
        (rng.normal(0, 0.05, shape).astype(np.float32), np.zeros(shape[1], np.float32))
        for shape in pairwise(sizes)
    ]
    (first, _), (second, _), (last, _) = weights
    lean = np.array([0.0, 0.1, 1.0, 0.5], np.float32)  # by position, speed, angle, its speed
    first[:, 0], first[:, 1] = lean, -lean
    second[:, :2] = 0.0
    second[0, 0] = second[1, 1] = 1.0
    last[:] = 0.0
    last[0, 1] = last[1, 0] = 1.0  # push to the side it leans to
    return weights


def measure(seed: int, seconds: float | None) -> Reading:
    """Samples per second of the clock, and CPU time for each, over so many seconds.

    With None, until standard input ends.
    """
    actor = BareActor(seed)
    for _ in range(LOOK_UP_STEPS):  # threads, caches, allocators
        actor.step()
    settled, began_s, cpu_began_s = actor.steps, time.perf_counter(), time.process_time()
    print("ready", flush=True)
    while not _over(began_s, seconds):
        for _ in range(LOOK_UP_STEPS):
            actor.step()
    elapsed_s, cpu_s = time.perf_counter() - began_s, time.process_time() - cpu_began_s
    samples = actor.steps - settled
    return {"samples_per_s": samples / elapsed_s, "actors_us": 1e6 * cpu_s / samples}


def _over(began_s: float, seconds: float | None) -> bool:
    if seconds is None:
        return bool(select.select([sys.stdin], [], [], 0)[0])
    return time.perf_counter() - began_s >= seconds
