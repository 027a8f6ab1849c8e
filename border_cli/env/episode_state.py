"""The way back into the middle of an episode: its actions are played again from its seed."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from border_cli.core.types import Array, Beat, leaves
from border_cli.env.answers import TERMINATED, TRUNCATED, as_flag, as_reward


class ReplayDiverged(Exception):
    """An episode went otherwise than it did before; says how."""


def stacked(actions: list[NDArray[Any]], count: int) -> NDArray[Any]:
    """T times [N, …] -> [T, N, …], at a fifth of the time of `np.stack`.

    Of no steps the form of an action is not known, nor needed.
    """
    if not actions:
        return np.empty((0, count), np.float32)
    return np.concatenate(actions).reshape(len(actions), *actions[0].shape)


def replay(
    env: Any,
    actions: Sequence[Any],
    *,
    seed: int,
    score: float,
    beat: Beat,
    lives: Sequence[int] = (),
) -> Any:
    """Plays an episode again, whose return was `score`; returns its last observation.

    `lives`: the lengths of the episodes that it goes on from, which have the first of the actions.
    Raises `ReplayDiverged` where it ends or pays otherwise, and whatever the environment raises.
    """
    total, ends = 0.0, set(accumulate(lives))
    observation, _ = env.reset(seed=seed)
    for count, action in enumerate(actions, start=1):
        observation, reward, terminated, truncated, _ = env.step(action)
        total += as_reward(reward)
        ended = as_flag(TERMINATED, terminated) or as_flag(TRUNCATED, truncated)
        if ended != (count in ends):
            how = "ended" if ended else "did not end"
            raise ReplayDiverged(f"the episode {how} after {count} of {len(actions)} steps")
        if ended:
            observation, _ = env.reset(seed=seed)
            total = 0.0
        beat()
    if np.float64(total).tobytes() != np.float64(score).tobytes():  # NaN equals NaN
        raise ReplayDiverged(f"its return is {total!r}, it was {score!r}")
    return observation


def require_same_row(i: int, now: Array, then: Array) -> None:
    """Raises `ReplayDiverged` where row i of two observations is not the same to the bit."""
    for mine, its in zip(leaves(now), leaves(then), strict=True):
        if mine.dtype != its.dtype or mine[i].tobytes() != its[i].tobytes():
            raise ReplayDiverged("the observation differs from the saved one")
