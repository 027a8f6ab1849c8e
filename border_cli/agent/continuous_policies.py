"""How actors choose continuous actions, in numpy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from border_cli.agent.action_space import ActionBounds, action_bounds
from border_cli.agent.actor_critic_config import Noise
from border_cli.agent.greedy import GreedyForm
from border_cli.agent.policies import NetworkPolicy, categorical_policy
from border_cli.core.interfaces import PolicyFactory
from border_cli.core.spaces import EnvSpec
from border_cli.core.types import Snapshot, State
from border_cli.nn.architecture import SQUASHED_LOG_STD_MAX, SQUASHED_LOG_STD_MIN
from border_cli.nn.numpy_network import MakeActing
from border_cli.settings.run import ActorExploration
from border_cli.settings.schedule import Schedule, schedule_of, value_at

REVERSION = np.float32(0.15)  # share of Ornstein-Uhlenbeck noise that every step takes away


class BoundedPolicy(NetworkPolicy):
    """Actions between -1 and 1, which become those between the bounds of the environment."""

    greedy_form = GreedyForm("tanh")

    def __init__(
        self,
        rng: np.random.Generator,
        exploration: float | None = None,
        *,
        network: MakeActing,
        bounds: ActionBounds,
    ) -> None:
        super().__init__(rng, network=network, actions=bounds.space)
        self._bounds = bounds
        self._factor = np.float32(1 if exploration is None else exploration)  # on deviations


class GaussianPolicy(BoundedPolicy):
    """Explores with samples of its distribution, and evaluates with tanh(mean).

    The network puts out mean and log_std side by side, as `nn.distributions.split` takes them.
    """

    def choose(self, outputs: NDArray[np.float32], *, explore: bool) -> NDArray[Any]:
        size = self._bounds.size
        before: NDArray[Any] = outputs[:, :size]  # [N, A]
        if explore:
            # Half of what np.clip takes for one row.
            log_std = np.maximum(outputs[:, size:], SQUASHED_LOG_STD_MIN)
            log_std = np.minimum(log_std, SQUASHED_LOG_STD_MAX)
            std = self._factor * np.exp(log_std)
            before = before + std * self.rng.standard_normal(before.shape, np.float32)
        return self._bounds.to_env(np.tanh(before))


class ClippedGaussianPolicy(BoundedPolicy):
    """Explores with samples of N(tanh(x), std), and evaluates with tanh(x).

    The network puts out x; the deviations are weights of their own, the same in every state.
    """

    _std: NDArray[np.float32]  # [A]

    def load_snapshot(self, snapshot: Snapshot) -> None:
        super().load_snapshot(snapshot)
        self._std = self._factor * np.exp(snapshot.arrays["network.log_std"])

    def choose(self, outputs: NDArray[np.float32], *, explore: bool) -> NDArray[Any]:
        action = np.tanh(outputs)  # [N, A]
        if explore:
            action += self._std * self.rng.standard_normal(action.shape, np.float32)
        # In -1 … 1 as learned, then in the environment's units.
        return self._bounds.to_env(np.clip(action, -1, 1, out=action))


def stochastic_policy(spec: EnvSpec, network: MakeActing) -> PolicyFactory:
    """Samples of a learned distribution over the choices of an action, or over those of a Box."""
    bounds = action_bounds(spec.action)
    if bounds is None:
        return categorical_policy(spec, network)
    return partial(ClippedGaussianPolicy, network=network, bounds=bounds)


class DeterministicPolicy(BoundedPolicy):
    """tanh of what the network puts out, and noise on top of it where it explores.

    A number as `exploration` is a deviation of the noise in place of `noise_std`, both in units of
    actions between -1 and 1. Ornstein-Uhlenbeck noise begins at 0 with every episode, as in
    Algorithm 1 of Lillicrap et al. 2016, "Continuous control with deep reinforcement learning".
    """

    def __init__(
        self,
        rng: np.random.Generator,
        exploration: ActorExploration = None,
        *,
        network: MakeActing,
        bounds: ActionBounds,
        noise: Noise = Noise.gaussian,
        noise_std: float | Schedule = 0.0,
    ) -> None:
        super().__init__(rng, network=network, bounds=bounds)
        if isinstance(exploration, Mapping):
            noise, noise_std = exploration["noise"], schedule_of(exploration["noise_std"])
        elif exploration is not None:
            noise_std = exploration
        self._schedule = noise_std
        self._std = np.float32(value_at(self._schedule, 0))
        self._ornstein_uhlenbeck = noise == Noise.ornstein_uhlenbeck
        self._last = np.zeros((0, bounds.size), np.float32)  # [N, A] noise; no rows: none yet

    def load_snapshot(self, snapshot: Snapshot) -> None:
        super().load_snapshot(snapshot)
        self._std = np.float32(value_at(self._schedule, snapshot.env_steps))

    def choose(self, outputs: NDArray[np.float32], *, explore: bool) -> NDArray[Any]:
        action: NDArray[np.float32] = np.tanh(outputs)  # [N, A]
        if explore and self._std > 0:
            action += self._noise(action.shape)
        return self._bounds.to_env(action)  # which cuts it to the bounds

    def _noise(self, shape: tuple[int, ...]) -> NDArray[np.float32]:
        drawn = self._std * self.rng.standard_normal(shape, dtype=np.float32)
        if not self._ornstein_uhlenbeck:
            return drawn
        # Uhlenbeck and Ornstein 1930, "On the theory of Brownian motion".
        last = self._last if self._last.shape == shape else np.zeros(shape, np.float32)
        self._last = last - REVERSION * last + drawn
        return self._last

    def forget(self, envs: Sequence[int]) -> None:
        if self._ornstein_uhlenbeck:
            anew = np.isin(np.arange(len(self._last)), envs)  # [N]
            # A new array: the one before may be part of a saved state.
            self._last = np.where(anew[:, None], np.float32(0), self._last)

    def state_dict(self) -> State:
        return {**super().state_dict(), "noise": self._last}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self._last = state["noise"]
