"""Acting by a network that puts out one action, with noise to explore; in numpy alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from border_cli.agent.action_space import ActionBounds
from border_cli.agent.actor_critic_config import Noise
from border_cli.agent.network_policy import NetworkPolicy
from border_cli.core.types import State
from border_cli.nn.architecture import Architecture

REVERSION = np.float32(0.15)  # share of Ornstein-Uhlenbeck noise that every step takes away

Rows = NDArray[np.float32]


class DeterministicPolicy(NetworkPolicy):
    """tanh of what the network puts out, and noise on top of it where it explores.

    `exploration` is a deviation of the noise in place of `noise_std`, both in units of actions
    between -1 and 1. Ornstein-Uhlenbeck noise begins at 0 with every episode, as in Algorithm 1 of
    Lillicrap et al. 2016, "Continuous control with deep reinforcement learning".
    """

    def __init__(
        self,
        rng: np.random.Generator,
        exploration: float | None = None,
        *,
        architecture: Architecture,
        bounds: ActionBounds,
        noise: Noise = Noise.gaussian,
        noise_std: float = 0.0,
    ) -> None:
        super().__init__(rng, architecture=architecture, actions=bounds.space)
        self._bounds = bounds
        self._std = np.float32(noise_std if exploration is None else exploration)
        self._correlated = noise == Noise.ornstein_uhlenbeck
        self._last = np.zeros((0, bounds.size), np.float32)  # [N, A] noise; no rows: none yet

    def choose(self, outputs: NDArray[np.float32], *, explore: bool) -> NDArray[Any]:
        action: Rows = np.tanh(outputs)  # [N, A]
        if explore and self._std > 0:
            action += self._noise(action.shape)
        return self._bounds.to_env(action)  # which cuts it to the bounds

    def _noise(self, shape: tuple[int, ...]) -> Rows:
        drawn = self._std * self.rng.standard_normal(shape, dtype=np.float32)
        if not self._correlated:
            return drawn
        # Uhlenbeck and Ornstein 1930, "On the theory of Brownian motion".
        last = self._last if self._last.shape == shape else np.zeros(shape, np.float32)
        self._last = last - REVERSION * last + drawn
        return self._last

    def forget(self, envs: Sequence[int]) -> None:
        if self._correlated:
            anew = np.isin(np.arange(len(self._last)), envs)  # [N]
            # A new array: the one before may be part of a state that somebody keeps.
            self._last = np.where(anew[:, None], np.float32(0), self._last)

    def state_dict(self) -> State:
        return {**super().state_dict(), "noise": self._last}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self._last = state["noise"]
