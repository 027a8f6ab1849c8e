"""Policies for continuous actions, in numpy."""

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

REVERSION = np.float32(0.15)  # mean reversion rate of Ornstein-Uhlenbeck noise, per step


class BoundedPolicy(NetworkPolicy):
    """Base of policies that compute actions in [-1, 1] and rescale them to the environment."""

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
        self._factor = np.float32(1 if exploration is None else exploration)  # scales the noise


class GaussianPolicy(BoundedPolicy):
    """A squashed Gaussian policy. Samples when exploring, and otherwise returns tanh(mean).

    The network outputs mean and log_std concatenated, as expected by `nn.distributions.split`.
    """

    def choose(self, outputs: NDArray[np.float32], *, explore: bool) -> NDArray[Any]:
        size = self._bounds.size
        pre_tanh: NDArray[Any] = outputs[:, :size]  # [N, A]
        if explore:
            # Takes half the time of np.clip for a single row.
            log_std = np.maximum(outputs[:, size:], SQUASHED_LOG_STD_MIN)
            log_std = np.minimum(log_std, SQUASHED_LOG_STD_MAX)
            std = self._factor * np.exp(log_std)
            pre_tanh = pre_tanh + std * self.rng.standard_normal(pre_tanh.shape, np.float32)
        return self._bounds.to_env(np.tanh(pre_tanh))


class ClippedGaussianPolicy(BoundedPolicy):
    """A clipped Gaussian policy. Samples N(tanh(x), std) when exploring, else returns tanh(x).

    The network outputs x. The standard deviations are weights that do not depend on the state.
    """

    _std: NDArray[np.float32]  # [A]

    def load_snapshot(self, snapshot: Snapshot) -> None:
        super().load_snapshot(snapshot)
        self._std = self._factor * np.exp(snapshot.arrays["network.log_std"])

    def choose(self, outputs: NDArray[np.float32], *, explore: bool) -> NDArray[Any]:
        action = np.tanh(outputs)  # [N, A]
        if explore:
            action += self._std * self.rng.standard_normal(action.shape, np.float32)
        # Clip to [-1, 1] before rescaling, as in training.
        return self._bounds.to_env(np.clip(action, -1, 1, out=action))


def stochastic_policy(spec: EnvSpec, network: MakeActing) -> PolicyFactory:
    """Returns a factory of policies that sample discrete or continuous actions."""
    bounds = action_bounds(spec.action)
    if bounds is None:
        return categorical_policy(spec, network)
    return partial(ClippedGaussianPolicy, network=network, bounds=bounds)


class DeterministicPolicy(BoundedPolicy):
    """A deterministic policy, tanh of the network's outputs, with added noise when exploring.

    A number as `exploration` replaces `noise_std`; both refer to actions in [-1, 1].
    Ornstein-Uhlenbeck noise is reset to 0 at the start of each episode, as in Algorithm 1 of
    Lillicrap et al. 2016, "Continuous control with deep reinforcement learning".
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
        self._last_noise = np.zeros(
            (0, bounds.size), np.float32
        )  # [N, A] last noise, empty at first

    def load_snapshot(self, snapshot: Snapshot) -> None:
        super().load_snapshot(snapshot)
        self._std = np.float32(value_at(self._schedule, snapshot.env_steps))

    def choose(self, outputs: NDArray[np.float32], *, explore: bool) -> NDArray[Any]:
        action: NDArray[np.float32] = np.tanh(outputs)  # [N, A]
        if explore and self._std > 0:
            action += self._noise(action.shape)
        return self._bounds.to_env(action)  # clips to the bounds

    def _noise(self, shape: tuple[int, ...]) -> NDArray[np.float32]:
        noise = self._std * self.rng.standard_normal(shape, dtype=np.float32)
        if not self._ornstein_uhlenbeck:
            return noise
        # Uhlenbeck and Ornstein 1930, "On the theory of Brownian motion".
        last = self._last_noise if self._last_noise.shape == shape else np.zeros(shape, np.float32)
        self._last_noise = last - REVERSION * last + noise
        return self._last_noise

    def forget(self, envs: Sequence[int]) -> None:
        if self._ornstein_uhlenbeck:
            is_reset = np.isin(np.arange(len(self._last_noise)), envs)  # [N]
            # Not in place, because a saved state may refer to the old array.
            self._last_noise = np.where(is_reset[:, None], np.float32(0), self._last_noise)

    def state_dict(self) -> State:
        return {**super().state_dict(), "noise": self._last_noise}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self._last_noise = state["noise"]
