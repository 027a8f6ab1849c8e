"""Running discounted returns by their definition, and statistics that came in parts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from border_cli.core.returns import Moments


def running_returns(reward: Any, ended: Any, gamma: float) -> Any:
    """Of every step the discounted sum over its episode so far, the newest reward undiscounted.

    Rewards and ends of T steps of N environments. [T, N]
    """
    found = np.zeros(np.shape(reward))
    for env in range(found.shape[1]):
        first = 0
        for t in range(len(found)):
            ages = np.arange(t - first, -1, -1)
            found[t, env] = (np.power(gamma, ages) * np.asarray(reward)[first : t + 1, env]).sum()
            if ended[t, env]:
                first = t + 1
    return found


def pooled(moments: Sequence[Moments]) -> list[float]:
    """Count, mean and standard deviation of all values together."""
    count = sum(each.count for each in moments)
    mean = sum(each.count * each.mean for each in moments) / count
    square = sum(each.squares + each.count * each.mean**2 for each in moments) / count
    return [count, mean, (square - mean**2) ** 0.5]


def described(values: Any) -> list[float]:
    """The same of the values themselves."""
    return [np.size(values), np.mean(values), np.std(values)]
