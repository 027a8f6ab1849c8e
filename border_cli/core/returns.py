"""Running discounted returns: what actors send to the learner where it divides rewards by their
deviation (`agent.normalize_reward`).

As VecNormalize of Stable-Baselines3 has them (Raffin et al. 2021). Gymnasium's NormalizeReward
differs at the ends of episodes: it continues past a truncation, and past a termination it drops
what came before the last reward instead of that reward.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Moments:
    """Of the running returns since an actor's previous message, one per env step."""

    count: int
    mean: float
    squares: float  # sum of squared deviations from the mean

    @classmethod
    def of(cls, values: NDArray[np.float64]) -> Self:
        """Moments of at least one value. [K]"""
        with np.errstate(invalid="ignore"):  # of an infinity, which the learner refuses by name
            mean = values.mean()
            return cls(len(values), float(mean), float(np.square(values - mean).sum()))


class DiscountedReturns:
    """G = r + gamma G of each of N environments, 0 at the start of an episode; owned by one actor.

    It keeps every G until it is taken.
    """

    def __init__(self, gamma: float, num_envs: int) -> None:
        self._gamma = gamma
        self._running = np.zeros(num_envs)  # [N] float64; replaced, never written again
        self._untaken: list[NDArray[np.float64]] = []  # each [N], or fewer where not all moved

    def see(
        self,
        reward: NDArray[np.float32],
        ended: NDArray[np.bool_],
        moved: NDArray[np.bool_] | None,
    ) -> None:
        """One step of the environments; those that did not move have no episode. [N] each"""
        returns = reward + self._gamma * self._running  # [N] float64
        self._untaken.append(returns if moved is None else returns[moved])
        if moved is not None:
            ended = ended | ~moved
        self._running = np.where(ended, 0.0, returns) if np.count_nonzero(ended) else returns

    def take(self) -> tuple[Moments, ...]:
        """Of all since the last call; nothing where no environment moved."""
        values = self._values()
        self._untaken = []
        return (Moments.of(values),) if len(values) else ()

    def forget(self, envs: Sequence[int]) -> None:
        """The episodes of these environments start again."""
        self._running = self._running.copy()
        self._running[list(envs)] = 0.0

    def state_dict(self) -> dict[str, Any]:
        """The running returns, and those not taken."""
        return {"running": self._running, "untaken": self._values()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores what `state_dict` gave."""
        self._running = state["running"]
        self._untaken = [state["untaken"]]

    def _values(self) -> NDArray[np.float64]:
        return np.concatenate(self._untaken) if self._untaken else np.empty(0)
