"""How actors draw the actions that an on-policy agent learns from, in numpy."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from itertools import accumulate, pairwise
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from border_cli.agent.action_space import components_of
from border_cli.agent.greedy import GreedyForm, greedy
from border_cli.agent.policies import NetworkPolicy
from border_cli.core.interfaces import PolicyFactory
from border_cli.core.spaces import (
    BoxSpace,
    EnvSpec,
    LeafSpace,
    MultiDiscreteSpace,
    has_masks,
    split_mask,
)
from border_cli.core.types import Array, Column, Snapshot
from border_cli.nn.numpy_network import MakeActing
from border_cli.settings.run import ActorExploration

Extras = Mapping[str, NDArray[Any]]
LOG_PROB: Final = "log_prob"  # column [M]: of the action, by the policy that took it
UNCLIPPED: Final = "unclipped_action"  # column [M, A]: of a Box, before it was clipped
LOG_ROOT_2_PI = 0.5 * math.log(2 * math.pi)


def log_softmax(logits: NDArray[np.float32]) -> NDArray[np.float32]:
    """[N, n] -> [N, n]"""
    shifted = logits - logits.max(1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(1, keepdims=True))  # type: ignore[no-any-return]


class ChoicePolicy(NetworkPolicy):
    """Draws each component of an action from the softmax of its logits, or takes the most likely
    choice. A mask in the observation makes choices impossible."""

    greedy_form = GreedyForm("logits")

    def __init__(
        self,
        rng: np.random.Generator,
        exploration: ActorExploration = None,  # noqa: ARG002 - refused with rollouts
        *,
        network: MakeActing,
        space: LeafSpace,
        masked: bool,
    ) -> None:
        super().__init__(rng, network=network, actions=space)
        components = components_of(space)
        assert components is not None
        self._parts = [slice(*each) for each in pairwise((0, *accumulate(components)))]
        self._several = isinstance(space, MultiDiscreteSpace)
        self._has_masks = masked

    def _logits(self, obs: Array) -> NDArray[np.float32]:
        """Of all choices side by side; -inf where a choice is impossible. [N, S]"""
        mask = None
        if self._has_masks:
            obs, mask = split_mask(obs)
        logits = self.network(obs)[:, : self._parts[-1].stop]
        return logits if mask is None else np.where(mask, logits, np.float32(-np.inf))

    def choose(self, outputs: NDArray[np.float32], *, explore: bool) -> NDArray[Any]:
        actions, _ = self._drawn(outputs) if explore else (self._greedy(outputs), None)
        return actions

    def act(self, obs: Array, *, explore: bool) -> NDArray[Any]:
        return self.choose(self._logits(obs), explore=explore)

    def _greedy(self, logits: NDArray[np.float32]) -> NDArray[Any]:
        return self._joined([greedy(logits[:, each]) for each in self._parts])

    def _joined(self, choices: list[NDArray[np.int64]]) -> NDArray[np.int64]:
        return np.stack(choices, axis=1) if self._several else choices[0]

    def _drawn(self, logits: NDArray[np.float32]) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Actions, and their log-probabilities. [N] or [N, K], [N]"""
        choices, log_prob = [], np.zeros(len(logits), np.float32)
        rows = np.arange(len(logits))
        for part in self._parts:
            log = log_softmax(logits[:, part])  # [N, n]
            # The highest of log p + Gumbel noise is distributed as p.
            choice = greedy(log + self.rng.gumbel(size=log.shape))
            choices.append(choice)
            log_prob += log[rows, choice]
        return self._joined(choices), log_prob

    def explore(self, obs: Array) -> tuple[NDArray[Any], Extras]:
        actions, log_prob = self._drawn(self._logits(obs))
        return actions, {LOG_PROB: log_prob}


class BoxPolicy(NetworkPolicy):
    """Draws from a Gaussian in the environment's units, or takes its mean; the environment gets
    what is clipped to its bounds. The deviations are weights, the same in every state."""

    greedy_form = GreedyForm("clip")

    def __init__(
        self,
        rng: np.random.Generator,
        exploration: ActorExploration = None,  # noqa: ARG002 - refused with rollouts
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
        return self._clipped(self._drawn(mean)[0] if explore else mean)

    def _drawn(self, mean: NDArray[np.float32]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        noise = self.rng.standard_normal(mean.shape, np.float32)
        log_prob = -(0.5 * noise**2 + self._log_std + np.float32(LOG_ROOT_2_PI)).sum(1)
        return mean + self._std * noise, log_prob

    def _clipped(self, actions: NDArray[np.float32]) -> NDArray[Any]:
        shaped = actions.reshape(-1, *self._space.shape)
        return np.clip(shaped, self._space.low, self._space.high)

    def explore(self, obs: Array) -> tuple[NDArray[Any], Extras]:
        actions, log_prob = self._drawn(self.network(obs)[:, : self._size])
        return self._clipped(actions), {LOG_PROB: log_prob, UNCLIPPED: actions}


def columns_of_policy(spec: EnvSpec) -> list[Column]:
    """The columns that the policy in this environment gives with its actions."""
    single = np.dtype(np.float32)
    columns: list[Column] = [(LOG_PROB, single, ())]
    if isinstance(spec.action, BoxSpace):
        columns.append((UNCLIPPED, single, (math.prod(spec.action.shape),)))
    return columns


def sampling_policy(spec: EnvSpec, network: MakeActing) -> PolicyFactory:
    """The policy of an on-policy agent in this environment."""
    if isinstance(spec.action, BoxSpace):
        return partial(BoxPolicy, network=network, space=spec.action)
    masked = has_masks(spec.observation)
    return partial(ChoicePolicy, network=network, space=spec.action, masked=masked)
