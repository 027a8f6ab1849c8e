"""Running discounted returns, for dividing rewards by their standard deviation
(`agent.normalize_reward`).

Computed as in VecNormalize of Stable-Baselines3 (Raffin et al. 2021). Gymnasium's NormalizeReward
differs at the end of an episode: it continues past a truncation, and at a termination it resets the
return before it adds the last reward, not after.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Moments:
    """Moments of the running returns, one per env step, since an actor's previous message."""

    count: int
    mean: float
    squares: float  # sum of squared deviations from the mean

    @classmethod
    def of(cls, values: NDArray[np.float64]) -> Self:
        """Computes the moments of at least one value. [K]"""
        with np.errstate(invalid="ignore"):  # the learner rejects infinite rewards
            mean = values.mean()
            return cls(len(values), float(mean), float(np.square(values - mean).sum()))


class DiscountedReturns:
    """Running returns G = r + gamma G of N environments, 0 at the start of an episode.

    Every G is stored until `take`. Owned by one actor.
    """

    def __init__(self, gamma: float, num_envs: int) -> None:
        self._gamma = gamma
        self._running = np.zeros(num_envs)  # [N] float64; replaced, never modified
        self._untaken: list[NDArray[np.float64]] = []  # each [N], fewer if not all moved

    def update(
        self,
        reward: NDArray[np.float32],
        ended: NDArray[np.bool_],
        moved: NDArray[np.bool_] | None,
    ) -> None:
        """Adds one step. Environments that did not move have no running episode. [N] each"""
        returns = reward + self._gamma * self._running  # [N] float64
        self._untaken.append(returns if moved is None else returns[moved])
        if moved is not None:
            ended = ended | ~moved
        self._running = np.where(ended, 0.0, returns) if np.count_nonzero(ended) else returns

    def take(self) -> tuple[Moments, ...]:
        """Returns the moments of all returns since the last call; () if there are none."""
        values = self._values()
        self._untaken = []
        return (Moments.of(values),) if len(values) else ()

    def forget(self, envs: Sequence[int]) -> None:
        """Resets the returns of environments whose episodes start over."""
        self._running = self._running.copy()
        self._running[list(envs)] = 0.0

    def state_dict(self) -> dict[str, Any]:
        """Returns the running returns, and those not yet taken."""
        return {"running": self._running, "untaken": self._values()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores what `state_dict` returned."""
        self._running = state["running"]
        self._untaken = [state["untaken"]]

    def _values(self) -> NDArray[np.float64]:
        return np.concatenate(self._untaken) if self._untaken else np.empty(0)
