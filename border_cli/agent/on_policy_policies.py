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
from border_cli.core.types import Array, Column, Snapshot, num_rows
from border_cli.nn.arrays import log_softmax
from border_cli.nn.numpy_network import MakeActing
from border_cli.settings.run import ActorExploration

Extras = Mapping[str, NDArray[Any]]
LOG_PROB: Final = "log_prob"  # column [M]: log-probability of the action when it was sampled
UNCLIPPED: Final = "unclipped_action"  # column [M, A]: action of a Box before clipping
LOG_ROOT_2_PI = 0.5 * math.log(2 * math.pi)


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
        self._log_std = np.array(snapshot.arrays["noise.log_std"])  # [A]
        self._std = np.exp(self._log_std)

    def choose(self, outputs: NDArray[np.float32], *, explore: bool) -> NDArray[Any]:
        mean = outputs[:, : self._size]
        return self._clip(self._sample(mean)[0] if explore else mean)

    def _sample(self, mean: NDArray[np.float32]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        noise = self.rng.standard_normal(mean.shape, np.float32)
        log_prob = -(0.5 * noise**2 + self._log_std + np.float32(LOG_ROOT_2_PI)).sum(1)
        return mean + self._std * noise, log_prob

    def _clip(self, actions: NDArray[np.float32]) -> NDArray[Any]:
        shaped = actions.reshape(-1, *self._space.shape)
        return np.clip(shaped, self._space.low, self._space.high)

    def explore(self, obs: Array) -> tuple[NDArray[Any], Extras]:
        actions, log_prob = self._sample(self.network(obs)[:, : self._size])
        return self._clip(actions), {LOG_PROB: log_prob, UNCLIPPED: actions}


def policy_columns(spec: EnvSpec) -> list[Column]:
    """Returns the columns that the policy in this environment adds to the transitions."""
    single = np.dtype(np.float32)
    columns: list[Column] = [(LOG_PROB, single, ())]
    if isinstance(spec.action, BoxSpace):
        columns.append((UNCLIPPED, single, (math.prod(spec.action.shape),)))
    return columns


def sampling_policy(spec: EnvSpec, network: MakeActing) -> PolicyFactory:
    """Returns the factory of an on-policy agent's policy in this environment."""
    if isinstance(spec.action, BoxSpace):
        return partial(BoxPolicy, network=network, space=spec.action)
    policy_class = MaskedSamplingPolicy if has_masks(spec.observation) else SamplingPolicy
    return partial(policy_class, network=network, space=spec.action)
