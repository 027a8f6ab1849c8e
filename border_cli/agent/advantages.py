"""Generalised advantage estimation (Schulman et al. 2016, "High-dimensional continuous control
using generalized advantage estimation", equation 16) over rows that are no rectangle."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


class Segments:
    """The rows of each episode within a rollout, in the order of time.

    Rows of several environments take turns; an episode may begin or end anywhere.
    """

    def __init__(self, episode: NDArray[np.int64]) -> None:
        """`episode`: which one each row belongs to, rows of one episode in their order. [M]"""
        order = np.argsort(episode, kind="stable")  # [M]  episode by episode
        same = episode[order][1:] == episode[order][:-1]
        self.next = np.full(len(episode), -1)  # [M]  the row that follows; -1: none in the rollout
        self.next[order[:-1][same]] = order[1:][same]
        ends = np.flatnonzero(np.append(~same, True))  # in `order`
        length = np.diff(ends, prepend=-1)
        left = np.repeat(ends, length) - np.arange(len(episode))  # rows that follow, by `order`
        by_left = np.argsort(left, kind="stable")
        cuts = np.cumsum(np.bincount(left))[:-1]
        self.backwards = np.split(order[by_left], cuts)  # rows with 0, 1, 2, … behind them

    @property
    def last(self) -> NDArray[np.int64]:
        """The last row of each episode."""
        return self.backwards[0]


def advantages(
    segments: Segments,
    *,
    reward: NDArray[Any],
    discount: NDArray[Any],
    value: NDArray[Any],
    last_value: NDArray[Any],
    gae_lambda: float,
) -> NDArray[np.float64]:
    """Sums of (discount * lambda)^k delta over the rest of each episode. [M]

    delta = reward + discount V(next_obs) - V(obs). `last_value` is V(next_obs) of `segments.last`,
    from which an episode that goes on or was truncated bootstraps; the discount of a termination
    is 0. All other V(next_obs) are the values of the rows that follow.
    """
    value = value.astype(np.float64)
    next_value = np.where(segments.next >= 0, value[segments.next], 0.0)
    next_value[segments.last] = last_value
    delta = reward + discount * next_value - value
    result: NDArray[np.float64] = delta.copy()
    for rows in segments.backwards[1:]:
        result[rows] += gae_lambda * discount[rows] * result[segments.next[rows]]
    return result
