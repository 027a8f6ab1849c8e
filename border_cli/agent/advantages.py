"""Generalised advantage estimation (Schulman et al. 2016, "High-dimensional continuous control
using generalized advantage estimation", equation 16) for interleaved episodes."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


class Segments:
    """The rows of each episode in a rollout, in chronological order.

    Rows of several environments are interleaved; episodes may start and end at any row.
    """

    def __init__(self, episode: NDArray[np.int64]) -> None:
        """`episode` holds the episode number of each row; rows of an episode are in order. [M]"""
        order = np.argsort(episode, kind="stable")  # [M]  rows grouped by episode
        same = episode[order][1:] == episode[order][:-1]
        self.next = np.full(len(episode), -1)  # [M]  next row of the episode, or -1 for the last
        self.next[order[:-1][same]] = order[1:][same]
        ends = np.flatnonzero(np.append(~same, True))  # positions in `order`
        length = np.diff(ends, prepend=-1)
        left = np.repeat(ends, length) - np.arange(len(episode))  # rows left in the episode
        by_left = np.argsort(left, kind="stable")
        cuts = np.cumsum(np.bincount(left))[:-1]
        self.backwards = np.split(order[by_left], cuts)  # rows grouped by 0, 1, 2, … rows left

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
    """Returns the sums of (discount * lambda)^k delta over the rest of each episode. [M]

    delta = reward + discount V(next_obs) - V(obs). `last_value` is V(next_obs) of the rows in
    `segments.last`, for bootstrapping unfinished and truncated episodes; terminated episodes have
    a discount of 0. For all other rows, V(next_obs) is the value of the next row.
    """
    value = value.astype(np.float64)
    next_value = np.where(segments.next >= 0, value[segments.next], 0.0)
    next_value[segments.last] = last_value
    delta = reward + discount * next_value - value
    result: NDArray[np.float64] = delta.copy()
    for rows in segments.backwards[1:]:
        result[rows] += gae_lambda * discount[rows] * result[segments.next[rows]]
    return result
