"""Acting uniformly at random, in numpy alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from border_cli.core.interfaces import Policy
from border_cli.core.seeding import restore_generator
from border_cli.core.spaces import BoxSpace, DiscreteSpace, LeafSpace, MultiDiscreteSpace
from border_cli.core.types import Array, Snapshot, State, num_rows


class RandomPolicy(Policy):
    """Draws from the action space, whatever it sees and whether or not it should explore."""

    def __init__(
        self,
        space: LeafSpace,
        rng: np.random.Generator,
        exploration: float | None = None,  # noqa: ARG002 - cannot act more randomly than it does
    ) -> None:
        self._space = space
        self._rng = rng

    def load_snapshot(self, snapshot: Snapshot) -> None:
        """Nothing of a snapshot matters here."""

    def act(self, obs: Array, *, explore: bool) -> NDArray[Any]:  # noqa: ARG002 - never greedy
        rows = num_rows(obs)
        match self._space:
            case DiscreteSpace(n=n):
                return self._rng.integers(n, size=rows)
            case MultiDiscreteSpace(nvec=nvec):
                return self._rng.integers(nvec, size=(rows, len(nvec)))
            case BoxSpace():
                return draw_from_box(self._space, rows, self._rng)

    def state_dict(self) -> State:
        return {"generator": self._rng.bit_generator.state}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        restore_generator(self._rng, state["generator"])


def draw_from_box(space: BoxSpace, rows: int, rng: np.random.Generator) -> NDArray[np.float32]:
    """Uniform between two bounds, standard normal without any, and with one bound as far inside
    of it as the absolute value of a standard normal.  [rows, …]"""
    low, high = space.low.astype(np.float64), space.high.astype(np.float64)
    from_low, from_high = np.isfinite(low), np.isfinite(high)
    bottom, top = np.where(from_low, low, 0.0), np.where(from_high, high, 0.0)

    shape = (rows, *space.shape)
    normal = rng.standard_normal(shape)
    draws = np.select(
        [from_low & from_high, from_low, from_high],
        [
            bottom + (top - bottom) * rng.random(shape),
            bottom + np.abs(normal),
            top - np.abs(normal),
        ],
        default=normal,
    )
    return draws.astype(np.float32)
