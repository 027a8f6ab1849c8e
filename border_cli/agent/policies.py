"""Base classes of policies, and policies for discrete actions, in numpy.

Functions of Q(s, ·) receive q [N, num_actions], return actions [N] int64, and sample each row
independently. See `continuous_policies.py` for continuous actions.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from border_cli.agent.action_space import DiscreteActions
from border_cli.agent.greedy import ActionSelector, GreedyForm, greedy
from border_cli.agent.value_config import Exploration, ValueConfig
from border_cli.core.interfaces import Policy, PolicyFactory
from border_cli.core.seeding import restore_generator
from border_cli.core.spaces import (
    BoxSpace,
    DiscreteSpace,
    EnvSpec,
    LeafSpace,
    MultiDiscreteSpace,
    has_masks,
    split_mask,
)
from border_cli.core.types import Array, Snapshot, State, num_rows
from border_cli.errors import ConfigError
from border_cli.nn.numpy_network import MakeActing
from border_cli.settings.run import ActorExploration
from border_cli.settings.schedule import value_at

BLOCK = 1024  # number of random numbers drawn at once


def random_valid(
    space: LeafSpace, mask: NDArray[np.bool_], rng: np.random.Generator
) -> NDArray[np.int64]:
    """Samples valid actions uniformly. [N, n] -> [N] or [N, A]"""
    draws = np.where(mask, rng.random(mask.shape), -1.0)
    if not isinstance(space, MultiDiscreteSpace):
        return greedy(draws)
    parts = np.split(draws, np.cumsum(space.nvec)[:-1], axis=1)
    return np.stack([greedy(part) for part in parts], axis=1)


class EpsilonGreedy:
    """Epsilon-greedy action selection. Random actions include the best one.

    Random numbers are drawn in blocks, because a single one costs as much as a hundred. Owned by
    one policy.
    """

    def __init__(self, rng: np.random.Generator) -> None:
        self._rng = rng
        self._draws: list[float] = []  # unused random numbers in [0, 1)

    def __call__(self, q: NDArray[np.float32], epsilon: float) -> NDArray[np.int64]:
        action = greedy(q)
        rows = len(q)
        draws = self._draws
        if len(draws) < rows:
            draws += self._rng.random(max(rows, BLOCK)).tolist()
        for i in range(rows):
            draw = draws.pop()
            # Given draw < epsilon, draw / epsilon is uniform in [0, 1) and selects the action. It
            # is at most 1 - 2**-53, so its product with an integer rounds to below that integer.
            if draw < epsilon:
                action[i] = self._sample_uniform(q[i], draw / epsilon)
        return action

    def _sample_uniform(self, q: NDArray[np.float32], u: float) -> int:
        """Maps a uniform number u in [0, 1) to an action."""
        return int(u * len(q))

    def state_dict(self) -> State:
        """Returns the unused random numbers. The policy saves the generator."""
        return {"draws": np.array(self._draws, np.float64)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores the state returned by `state_dict`."""
        self._draws = state["draws"].tolist()


class MaskedEpsilonGreedy(EpsilonGreedy):
    """Epsilon-greedy over valid actions, which are those with a value other than -inf."""

    def _sample_uniform(self, q: NDArray[np.float32], u: float) -> int:
        valid = np.flatnonzero(q != -np.inf)  # NaN after a divergence, which the learner reports
        return int(valid[int(u * len(valid))])


def sample_softmax(
    q: NDArray[np.float32], temperature: float, rng: np.random.Generator
) -> NDArray[np.int64]:
    """Samples actions with P(a) ~ exp(Q(a) / temperature); greedy at temperature 0.

    The argmax of q + temperature * Gumbel noise has this distribution (Gumbel-max trick).
    """
    return greedy(q + temperature * rng.gumbel(size=q.shape))


def draw_from_box(space: BoxSpace, rows: int, rng: np.random.Generator) -> NDArray[Any]:
    """Samples uniformly between two bounds, from a standard normal without bounds, and at a
    half-normal distance from a single bound; integers uniformly, with both bounds. [rows, …]"""
    if np.dtype(space.dtype).kind != "f":
        size = (rows, *space.shape)
        return rng.integers(space.low, space.high, size, space.dtype, endpoint=True)
    low, high = space.low.astype(np.float64), space.high.astype(np.float64)
    has_low, has_high = np.isfinite(low), np.isfinite(high)
    bottom, top = np.where(has_low, low, 0.0), np.where(has_high, high, 0.0)

    shape = (rows, *space.shape)
    normal = rng.standard_normal(shape)
    draws = np.select(
        [has_low & has_high, has_low, has_high],
        [
            bottom + (top - bottom) * rng.random(shape),
            bottom + np.abs(normal),
            top - np.abs(normal),
        ],
        default=normal,
    )
    return draws.astype(np.float32)


def random_actions(space: LeafSpace, rows: int, rng: np.random.Generator) -> NDArray[Any]:
    """Samples random actions from the space. [rows] or [rows, …]"""
    match space:
        case DiscreteSpace(n=n):
            return rng.integers(n, size=rows)
        case MultiDiscreteSpace(nvec=nvec):
            return rng.integers(nvec, size=(rows, len(nvec)))
        case BoxSpace():
            return draw_from_box(space, rows, rng)


class RandomPolicy(Policy):
    """Samples from the action space, whether exploring or not."""

    def __init__(
        self,
        space: LeafSpace,
        rng: np.random.Generator,
        exploration: float | None = None,  # noqa: ARG002 - always uniformly random
        *,
        masked: bool = False,
    ) -> None:
        self._space = space
        self._rng = rng
        self._masked = masked

    def load_snapshot(self, snapshot: Snapshot) -> None:
        """Does nothing, because there are no weights."""

    def act(self, obs: Array, *, explore: bool) -> NDArray[Any]:  # noqa: ARG002 - never greedy
        if self._masked:
            return random_valid(self._space, split_mask(obs)[1], self._rng)
        return random_actions(self._space, num_rows(obs), self._rng)

    def state_dict(self) -> State:
        return {"generator": self._rng.bit_generator.state}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        restore_generator(self._rng, state["generator"])


class NetworkPolicy(Policy):
    """Acts with a network; exploring actions are random during warm-up.

    The acting thread owns the policy and its random number generator.
    """

    greedy_form: GreedyForm | None = None  # None if greedy actions follow no `GreedyForm`
    _mask: NDArray[np.bool_] | None = None  # [N, n]  valid choices, if observations have masks

    def __init__(
        self, rng: np.random.Generator, *, network: MakeActing, actions: LeafSpace
    ) -> None:
        self.rng = rng
        self.network = network()
        self._actions = actions
        self._warm_up = False

    @abstractmethod
    def choose(self, outputs: NDArray[np.float32], *, explore: bool) -> NDArray[Any]:
        """Converts the outputs of the network to actions. [N, outputs] -> [N] or [N, A]"""

    def load_snapshot(self, snapshot: Snapshot) -> None:
        self.network.load(snapshot.arrays)
        self._warm_up = snapshot.warm_up

    def act(self, obs: Array, *, explore: bool) -> NDArray[Any]:
        if explore and self._warm_up:
            return random_actions(self._actions, num_rows(obs), self.rng)
        return self.choose(self.network(obs), explore=explore)

    def bind_thread(self) -> None:
        self.network.bind_thread()

    def state_dict(self) -> State:
        return {"generator": self.rng.bit_generator.state}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        restore_generator(self.rng, state["generator"])


class MaskedPolicy(NetworkPolicy):
    """A mixin that splits action masks from observations before they reach the network."""

    def act(self, obs: Array, *, explore: bool) -> NDArray[Any]:
        unmasked, self._mask = split_mask(obs)
        if explore and self._warm_up:
            return random_valid(self._actions, self._mask, self.rng)
        return super().act(unmasked, explore=explore)


class DiscretePolicy(NetworkPolicy):
    """Base of policies for discrete actions, chosen by values or logits."""

    def __init__(
        self, rng: np.random.Generator, form: GreedyForm, *, network: MakeActing, space: LeafSpace
    ) -> None:
        super().__init__(rng, network=network, actions=space)
        self.greedy_form = form
        self.choice = ActionSelector(form, space)

    @abstractmethod
    def pick(self, values: NDArray[np.float32]) -> NDArray[np.int64]:
        """Selects a choice in each row, with exploration. [N, n] -> [N]"""

    def choose(self, outputs: NDArray[np.float32], *, explore: bool) -> NDArray[Any]:
        pick, values = self.pick if explore else greedy, self.choice.values(outputs)
        actions: NDArray[Any] = self.choice.actions(values, self._mask, pick)
        return actions


class QPolicy(DiscretePolicy):
    """Greedy with respect to Q(s, ·), with the exploration of the agent's settings.

    A number as `exploration` is a constant epsilon or temperature; a mapping replaces settings.
    With `atoms` (v_min, v_max and the number of atoms), the network outputs logits of
    distributions, whose means are the values. If `noisy` is set, the weights are noisy while
    exploring.
    """

    epsilon_greedy: ClassVar[type[EpsilonGreedy]] = EpsilonGreedy

    def __init__(
        self,
        config: ValueConfig,
        rng: np.random.Generator,
        exploration: ActorExploration = None,
        *,
        network: MakeActing,
        actions: DiscreteActions,
        atoms: tuple[float, float, int] | None = None,
        noisy: bool = False,
    ) -> None:
        super().__init__(rng, GreedyForm("values", atoms), network=network, space=actions.space)
        if isinstance(exploration, Mapping):
            config, exploration = replace(config, **exploration), None
        self._config = config
        self._schedule = config.exploration_schedule if exploration is None else exploration
        self._noisy = noisy
        self._softmax = config.exploration == Exploration.softmax
        self._epsilon_greedy = self.epsilon_greedy(rng)
        if (
            exploration is not None
            and not self._softmax
            and (exploration > 1 or config.exploration == Exploration.greedy)
        ):
            raise ConfigError(
                "actor_manager.exploration must be at most 1 with agent.exploration=epsilon_greedy "
                f"and null with greedy, got {exploration!r}"
            )
        self._exploration = value_at(self._schedule, 0)

    def load_snapshot(self, snapshot: Snapshot) -> None:
        super().load_snapshot(snapshot)
        self._exploration = value_at(self._schedule, snapshot.env_steps)

    def act(self, obs: Array, *, explore: bool) -> NDArray[Any]:
        if self._noisy:
            self.network.noise = self.rng if explore else None
        return super().act(obs, explore=explore)

    def pick(self, values: NDArray[np.float32]) -> NDArray[np.int64]:
        if self._config.exploration == Exploration.greedy:
            return greedy(values)
        if self._softmax:
            return sample_softmax(values, self._exploration, self.rng)
        return self._epsilon_greedy(values, self._exploration)

    def state_dict(self) -> State:
        return {**super().state_dict(), **self._epsilon_greedy.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self._epsilon_greedy.load_state_dict(state)


class MaskedQPolicy(MaskedPolicy, QPolicy):
    """A `QPolicy` restricted to valid actions by the mask in the observation."""

    epsilon_greedy = MaskedEpsilonGreedy


def q_policy(spec: EnvSpec) -> type[QPolicy]:
    """Returns the policy class of Q-learning agents in this environment."""
    return MaskedQPolicy if has_masks(spec.observation) else QPolicy


class CategoricalPolicy(DiscretePolicy):
    """Samples from the softmax of the logits when exploring, else takes the most likely action.

    In a MultiDiscrete space the network outputs the concatenated logits of the components, which
    are sampled independently. `exploration` is the temperature.
    """

    def __init__(
        self,
        rng: np.random.Generator,
        exploration: float | None = None,
        *,
        network: MakeActing,
        space: LeafSpace,
    ) -> None:
        super().__init__(rng, GreedyForm("logits"), network=network, space=space)
        self._temperature = 1.0 if exploration is None else exploration

    def pick(self, values: NDArray[np.float32]) -> NDArray[np.int64]:
        return sample_softmax(values, self._temperature, self.rng)


class MaskedCategoricalPolicy(MaskedPolicy, CategoricalPolicy):
    """A `CategoricalPolicy` restricted to valid actions by the mask in the observation."""


def categorical_policy(spec: EnvSpec, network: MakeActing) -> PolicyFactory:
    """Returns the factory of a categorical policy in this environment."""
    policy_class = MaskedCategoricalPolicy if has_masks(spec.observation) else CategoricalPolicy
    return partial(policy_class, network=network, space=spec.action)
