"""How actions are tried, given the value of each.

q: [N, num_actions]. All return [N] int64 and draw anew for each of the N rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from border_cli.core.types import State

BLOCK = 1024  # random numbers drawn at once


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


class EpsilonGreedy:
    """The best action, or with probability `epsilon` any of them, the best included.

    Draws its random numbers in blocks: one alone costs as much as a hundred. Owned by one policy.
    """

    def __init__(self, rng: np.random.Generator) -> None:
        self._rng = rng
        self._draws: list[float] = []  # between 0 and 1, not used yet

    def __call__(self, q: NDArray[np.float32], epsilon: float) -> NDArray[np.int64]:
        action = greedy(q)
        rows, num_actions = q.shape
        draws = self._draws
        if len(draws) < rows:
            draws += self._rng.random(max(rows, BLOCK)).tolist()
        for i in range(rows):
            draw = draws.pop()
            # Below epsilon, draw / epsilon is uniform again and says which action. It is below 1
            # by at least 2**-53, so its product with a whole number rounds to below that number.
            if draw < epsilon:
                action[i] = int(draw / epsilon * num_actions)
        return action

    def state_dict(self) -> State:
        """What was drawn and not used; the generator is its owner's."""
        return {"draws": np.array(self._draws, np.float64)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores what `state_dict` gave."""
        self._draws = state["draws"].tolist()


def softmax(
    q: NDArray[np.float32], temperature: float, rng: np.random.Generator
) -> NDArray[np.int64]:
    """An action with P(a) ~ exp(Q(a) / temperature); the best one at temperature 0.

    The highest of q + temperature * Gumbel noise has this distribution (Gumbel-max trick).
    """
    return greedy(q + temperature * rng.gumbel(size=q.shape))
