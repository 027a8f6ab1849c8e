"""Prioritized replay of CartPole transitions: microseconds to sample, fetch and update a batch.

    python -m benchmarks.prioritized [--repeats 20000] [--rows 1000000] [--batch 64]

Prints one JSON object. A plain binary sum tree in numpy with one array per column does the same
work; the two alternate batch by batch, so that the ratio depends little on the machine.
"""

from __future__ import annotations

import argparse
import time
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.table import emit
from border_cli.core.spaces import BoxSpace, DiscreteSpace, EnvSpec
from border_cli.core.types import Transitions
from border_cli.replay_buffer.config import Normalize, PrioritizedConfig
from border_cli.replay_buffer.prioritized import EPSILON, PrioritizedReplayBuffer

BOX = BoxSpace(shape=(4,), dtype="float32", low=np.full(4, -9.0), high=np.full(4, 9.0))
SPEC = EnvSpec(id="CartPole", observation=BOX, action=DiscreteSpace(2), max_episode_steps=500)


class BinaryTreeBuffer:
    """The baseline: a binary sum tree with one numpy step per level and weights by batch."""

    def __init__(self, rows: Transitions, config: PrioritizedConfig, seed: int) -> None:
        self._config = config
        self._rng = np.random.default_rng(seed)
        self._columns: list[NDArray[Any]] = [
            rows.action,
            rows.reward,
            rows.discount,
            np.asarray(rows.obs),
            np.asarray(rows.next_obs),
        ]
        self._depth = (len(rows) - 1).bit_length()
        self._leaf = 1 << self._depth
        self._sums = np.zeros(2 * self._leaf)  # node i has the children 2i and 2i + 1

    def sample(self, batch_size: int) -> tuple[NDArray[np.int64], list[NDArray[Any]]]:
        sums = self._sums
        mass = (np.arange(batch_size) + self._rng.random(batch_size)) * (sums[1] / batch_size)
        node = np.ones(batch_size, np.int64)
        for _ in range(self._depth):
            node <<= 1
            left = sums[node]
            right = mass >= left
            mass -= left * right
            node += right
        weight = sums[node] ** -self._config.beta["initial"]
        weight /= weight.max()
        index = node - self._leaf
        return index, [weight.astype(np.float32), *(column[index] for column in self._columns)]

    def update_priorities(self, index: NDArray[np.int64], td_error: NDArray[np.float32]) -> None:
        node = index + self._leaf
        self._sums[node] = (np.abs(td_error, dtype=np.float64) + EPSILON) ** self._config.alpha
        for _ in range(self._depth):
            node = node >> 1
            self._sums[node] = self._sums[2 * node] + self._sums[2 * node + 1]


def cartpole_rows(count: int, rng: np.random.Generator) -> Transitions:
    return Transitions(
        obs=rng.random((count, 4), np.float32),
        action=rng.integers(0, 2, count),
        reward=np.ones(count, np.float32),
        discount=np.full(count, 0.99, np.float32),
        next_obs=rng.random((count, 4), np.float32),
    )


def measure(rows: int, batch: int, normalize: Normalize, repeats: int) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    config = PrioritizedConfig(capacity=rows, normalize=normalize)
    buffer = PrioritizedReplayBuffer(config, spec=SPEC, rng=np.random.default_rng(1))
    stored = cartpole_rows(rows, rng)
    buffer.push(stored)
    binary = BinaryTreeBuffer(stored, config, seed=1)
    everything, errors = np.arange(rows), rng.exponential(size=rows).astype(np.float32)
    for start in range(0, rows, 4096):
        part = slice(start, start + 4096)
        buffer.update_priorities(everything[part], errors[part])
        binary.update_priorities(everything[part], errors[part])

    sample_us, update_us, both_us, binary_us = [], [], [], []
    for _ in range(repeats):
        td_error = rng.exponential(size=batch).astype(np.float32)
        began = time.perf_counter_ns()
        index = buffer.sample(batch).index
        sampled = time.perf_counter_ns()
        buffer.update_priorities(index, td_error)
        updated = time.perf_counter_ns()
        binary_index, _ = binary.sample(batch)
        binary.update_priorities(binary_index, td_error)
        binary_us.append((time.perf_counter_ns() - updated) / 1e3)
        sample_us.append((sampled - began) / 1e3)
        update_us.append((updated - sampled) / 1e3)
        both_us.append((updated - began) / 1e3)
    return {
        "rows": rows,
        "batch": batch,
        "normalize": str(normalize),
        "sample_us": round(median(sample_us), 1),
        "update_us": round(median(update_us), 1),
        "both_us": round(median(both_us), 1),
        "both_min_us": round(min(both_us), 1),
        "binary_tree_us": round(median(binary_us), 1),
        "ratio": round(median(binary_us) / median(both_us), 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--rows",
        type=int,
        default=1_000_000,
        help="transitions in the replay buffer (default: 1000000)",
    )
    parser.add_argument("--batch", type=int, default=64, help="batch size (default: 64)")
    parser.add_argument("--normalize", type=Normalize, default=Normalize.batch)
    parser.add_argument(
        "--repeats", type=int, default=20_000, help="timed batches (default: 20000)"
    )
    arguments = parser.parse_args()
    emit("prioritized", "sample_and_update", measure(**vars(arguments)))


if __name__ == "__main__":
    main()
