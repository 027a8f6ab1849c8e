"""Running discounted returns by their definition, and pooled statistics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from border_cli.core.returns import Moments


def running_returns(reward: Any, ended: Any, gamma: float) -> Any:
    """Returns the discounted sum of past rewards in the episode; the newest is not discounted.

    All arrays are [T, N]: T steps of N environments.
    """
    returns = np.zeros(np.shape(reward))
    for env in range(returns.shape[1]):
        first = 0
        for t in range(len(returns)):
            ages = np.arange(t - first, -1, -1)
            returns[t, env] = (np.power(gamma, ages) * np.asarray(reward)[first : t + 1, env]).sum()
            if ended[t, env]:
                first = t + 1
    return returns


def pooled(moments: Sequence[Moments]) -> list[float]:
    """Returns count, mean and standard deviation of the pooled values."""
    count = sum(part.count for part in moments)
    mean = sum(part.count * part.mean for part in moments) / count
    square = sum(part.squares + part.count * part.mean**2 for part in moments) / count
    return [count, mean, (square - mean**2) ** 0.5]


def described(values: Any) -> list[float]:
    """Returns count, mean and standard deviation, computed directly from the values."""
    return [np.size(values), np.mean(values), np.std(values)]
