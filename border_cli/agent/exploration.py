"""How actions are tried, given the value of each.

q: [N, num_actions]. Every function returns [N] int64 and draws anew for each of the N rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def linear(start: float, final: float, progress: float) -> float:
    """From `start` to `final` as progress goes from 0 to 1, and `final` from there on."""
    return start + (final - start) * min(progress, 1.0)


def uniform(num_actions: int, rows: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Any action, equally often."""
    return rng.integers(num_actions, size=rows)


def greedy(q: NDArray[np.floating[Any]]) -> NDArray[np.int64]:
    """The action of the highest value; of equal ones the first."""
    best: NDArray[np.int64] = q.argmax(axis=1)
    return best


def epsilon_greedy(
    q: NDArray[np.float32], epsilon: float, rng: np.random.Generator
) -> NDArray[np.int64]:
    """The best action, or with probability `epsilon` any of them, the best included."""
    action = greedy(q)
    explores: NDArray[Any] = rng.random(len(action)) < epsilon  # [N]
    rows = int(np.count_nonzero(explores))
    if rows:
        action[explores] = uniform(q.shape[1], rows, rng)
    return action


def softmax(
    q: NDArray[np.float32], temperature: float, rng: np.random.Generator
) -> NDArray[np.int64]:
    """An action with P(a) ~ exp(Q(a) / temperature); the best one at temperature 0.

    The highest of q + temperature * Gumbel noise has this distribution (Gumbel-max trick).
    """
    return greedy(q + temperature * rng.gumbel(size=q.shape))
