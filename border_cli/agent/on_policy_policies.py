"""Policies of on-policy agents, in numpy. They return log-probabilities with the actions."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from border_cli.agent.greedy import GreedyForm
from border_cli.agent.policies import CategoricalPolicy, MaskedPolicy, NetworkPolicy
from border_cli.core.interfaces import PolicyFactory
from border_cli.core.spaces import BoxSpace, EnvSpec, has_masks
from border_cli.core.types import Array, Column, Snapshot, State, num_rows
from border_cli.nn.arrays import log_softmax
from border_cli.nn.numpy_network import MakeActing, NumpyNetwork
from border_cli.settings.run import ActorExploration

Extras = Mapping[str, NDArray[Any]]
LOG_PROB: Final = "log_prob"  # column [M]: log-probability of the action when it was sampled
UNCLIPPED: Final = "unclipped_action"  # column [M, A]: action of a Box before clipping
LOG_ROOT_2_PI = 0.5 * math.log(2 * math.pi)
VARIANCE_FLOOR = 1e-6  # added to the variance of state-dependent noise, as in Stable-Baselines3


class SamplingPolicy(CategoricalPolicy):
    """Samples actions with their log-probabilities, which are summed over the components."""

    _log_prob: NDArray[np.float32]  # [N]  log-probabilities, accumulated during `act`

    def pick(self, values: NDArray[np.float32]) -> NDArray[np.int64]:
        choice = super().pick(values)
        self._log_prob += log_softmax(values)[np.arange(len(values)), choice]
        return choice

    def act(self, obs: Array, *, explore: bool) -> NDArray[Any]:
        self._log_prob = np.zeros(num_rows(obs), np.float32)
        return super().act(obs, explore=explore)

    def explore(self, obs: Array) -> tuple[NDArray[Any], Extras]:
        actions = self.act(obs, explore=True)
        return actions, {LOG_PROB: self._log_prob}


class MaskedSamplingPolicy(MaskedPolicy, SamplingPolicy):
    """A `SamplingPolicy` restricted to valid actions by the mask in the observation."""


class BoxPolicy(NetworkPolicy):
    """Samples from a Gaussian in the environment's units to explore, and otherwise returns its
    mean, clipped to the bounds. The standard deviations are weights independent of the state."""

    greedy_form = GreedyForm("clip")

    def __init__(
        self,
        rng: np.random.Generator,
        exploration: ActorExploration = None,  # noqa: ARG002 - rejected for on-policy agents
        *,
        network: MakeActing,
        space: BoxSpace,
    ) -> None:
        super().__init__(rng, network=network, actions=space)
        self._space = space
        self._size = math.prod(space.shape)

    def load_snapshot(self, snapshot: Snapshot) -> None:
        super().load_snapshot(snapshot)
        self._log_std = np.array(snapshot.arrays["noise.log_std"])  # [A] or [H, A]
        self._std = np.exp(self._log_std)

    def act(self, obs: Array, *, explore: bool) -> NDArray[Any]:
        return self.explore(obs)[0] if explore else super().act(obs, explore=False)

    def choose(self, outputs: NDArray[np.float32], *, explore: bool) -> NDArray[Any]:  # noqa: ARG002
        return self._clip(outputs[:, : self._size])

    def _clip(self, actions: NDArray[np.float32]) -> NDArray[Any]:
        shaped = actions.reshape(-1, *self._space.shape)
        return np.clip(shaped, self._space.low, self._space.high)

    def _sample(self, obs: Array) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Returns actions before clipping and their log-probabilities. [N, A], [N]"""
        mean = self.network(obs)[:, : self._size]
        noise = self.rng.standard_normal(mean.shape, np.float32)
        return mean + self._std * noise, _log_prob(noise, self._log_std)

    def explore(self, obs: Array) -> tuple[NDArray[Any], Extras]:
        actions, log_prob = self._sample(obs)
        return self._clip(actions), {LOG_PROB: log_prob, UNCLIPPED: actions}


def _log_prob(noise: NDArray[np.float32], log_std: NDArray[np.float32]) -> NDArray[np.float32]:
    """Returns log-probabilities, given standardised noise. [N, A], [A] or [N, A] -> [N]"""
    log_prob: NDArray[np.float32] = -(0.5 * noise**2 + log_std + np.float32(LOG_ROOT_2_PI)).sum(1)
    return log_prob


class StateDependentPolicy(BoxPolicy):
    """Generalised state-dependent exploration (gSDE).

    Raffin, Kober and Stulp 2021, "Smooth exploration for robotic reinforcement learning". The noise
    is a random linear function of the network's last hidden layer. Its matrix, one per environment,
    is sampled anew for each new policy (once per rollout) and every `sample_freq` steps, so that
    actions change smoothly in between.
    """

    network: NumpyNetwork

    def __init__(
        self,
        rng: np.random.Generator,
        exploration: ActorExploration = None,
        *,
        network: MakeActing,
        space: BoxSpace,
        sample_freq: int | None,
    ) -> None:
        super().__init__(rng, exploration, network=network, space=space)
        self._sample_freq = sample_freq
        self._opt_steps = 0  # of the newest weights
        self._sampled_at = -1  # `_opt_steps` when the matrices were sampled
        self._num_steps = 0  # steps with these matrices
        self._matrices = np.empty((0, 0, 0), np.float32)  # [N, H, A]

    def load_snapshot(self, snapshot: Snapshot) -> None:
        super().load_snapshot(snapshot)
        self._opt_steps = snapshot.opt_steps
        self._weight_variance = np.exp(2 * self._log_std)  # [H, A]

    def _sample(self, obs: Array) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        outputs, hidden = self.network.outputs_and_hidden(obs)
        mean = outputs[:, : self._size]
        if self._sampled_at != self._opt_steps or self._num_steps == self._sample_freq:
            shape = len(mean), *self._std.shape
            self._matrices = self._std * self.rng.standard_normal(shape, np.float32)
            self._sampled_at, self._num_steps = self._opt_steps, 0
        self._num_steps += 1
        noise = np.matmul(hidden[:, None], self._matrices)[:, 0]  # [N, A]
        variance = (hidden**2).dot(self._weight_variance) + np.float32(VARIANCE_FLOOR)
        log_prob = _log_prob(noise / np.sqrt(variance), 0.5 * np.log(variance))
        return mean + noise, log_prob

    def state_dict(self) -> State:
        noise = {"matrices": self._matrices, "at": self._sampled_at, "steps": self._num_steps}
        return {**super().state_dict(), "noise": noise}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        noise = state["noise"]
        self._matrices = noise["matrices"]
        self._sampled_at, self._num_steps = int(noise["at"]), int(noise["steps"])


def policy_columns(spec: EnvSpec) -> list[Column]:
    """Returns the columns that the policy in this environment adds to the transitions."""
    single = np.dtype(np.float32)
    columns: list[Column] = [(LOG_PROB, single, ())]
    if isinstance(spec.action, BoxSpace):
        columns.append((UNCLIPPED, single, (math.prod(spec.action.shape),)))
    return columns


def sampling_policy(
    spec: EnvSpec, network: MakeActing, *, gsde: bool, sample_freq: int | None
) -> PolicyFactory:
    """Returns the factory of an on-policy agent's policy in this environment."""
    if gsde:
        policy = partial(StateDependentPolicy, sample_freq=sample_freq)
        return partial(policy, network=network, space=spec.action)
    if isinstance(spec.action, BoxSpace):
        return partial(BoxPolicy, network=network, space=spec.action)
    policy_class = MaskedSamplingPolicy if has_masks(spec.observation) else SamplingPolicy
    return partial(policy_class, network=network, space=spec.action)
