"""How actors choose actions, in numpy; those of continuous actions: `continuous_policies.py`.

Functions of Q(s, ·) take q [N, num_actions], return [N] int64, and draw anew for each of the N
rows.
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
from border_cli.agent.greedy import Choice, GreedyForm, greedy
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

BLOCK = 1024  # random numbers drawn at once


def random_valid(
    space: LeafSpace, mask: NDArray[np.bool_], rng: np.random.Generator
) -> NDArray[np.int64]:
    """Any valid actions of the space, equally often. [N, n] -> [N] or [N, A]"""
    draws = np.where(mask, rng.random(mask.shape), -1.0)
    if not isinstance(space, MultiDiscreteSpace):
        return greedy(draws)
    parts = np.split(draws, np.cumsum(space.nvec)[:-1], axis=1)
    return np.stack([greedy(part) for part in parts], axis=1)


class EpsilonGreedy:
    """The best action, or with probability `epsilon` any of them, the best included.

    Draws its random numbers in blocks: one alone costs as much as a hundred. Owned by one policy.
    """

    def __init__(self, rng: np.random.Generator) -> None:
        self._rng = rng
        self._draws: list[float] = []  # between 0 and 1, not used yet

    def __call__(self, q: NDArray[np.float32], epsilon: float) -> NDArray[np.int64]:
        action = greedy(q)
        rows = len(q)
        draws = self._draws
        if len(draws) < rows:
            draws += self._rng.random(max(rows, BLOCK)).tolist()
        for i in range(rows):
            draw = draws.pop()
            # Below epsilon, draw / epsilon is uniform again and says which action. It is below 1
            # by at least 2**-53, so its product with a whole number rounds to below that number.
            if draw < epsilon:
                action[i] = self._any(q[i], draw / epsilon)
        return action

    def _any(self, q: NDArray[np.float32], share: float) -> int:
        """The action at this share, below 1, of all of them."""
        return int(share * len(q))

    def state_dict(self) -> State:
        """The numbers drawn and not used; the generator is its owner's."""
        return {"draws": np.array(self._draws, np.float64)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores what `state_dict` gave."""
        self._draws = state["draws"].tolist()


class MaskedEpsilonGreedy(EpsilonGreedy):
    """Any valid action in place of any: those of a value above -inf."""

    def _any(self, q: NDArray[np.float32], share: float) -> int:
        valid = np.flatnonzero(q > -np.inf)
        return int(valid[int(share * len(valid))])


def softmax(
    q: NDArray[np.float32], temperature: float, rng: np.random.Generator
) -> NDArray[np.int64]:
    """An action with P(a) ~ exp(Q(a) / temperature); the best one at temperature 0.

    The highest of q + temperature * Gumbel noise has this distribution (Gumbel-max trick).
    """
    return greedy(q + temperature * rng.gumbel(size=q.shape))


def draw_from_box(space: BoxSpace, rows: int, rng: np.random.Generator) -> NDArray[np.float32]:
    """Uniform between two bounds, standard normal without any, and with one bound as far inside
    of it as the absolute value of a standard normal.  [rows, …]"""
    low, high = space.low.astype(np.float64), space.high.astype(np.float64)
    from_low, from_high = np.isfinite(low), np.isfinite(high)
    bottom, top = np.where(from_low, low, 0.0), np.where(from_high, high, 0.0)

    shape = (rows, *space.shape)
    normal = rng.standard_normal(shape)
    draws = np.select(
        [from_low & from_high, from_low, from_high],
        [
            bottom + (top - bottom) * rng.random(shape),
            bottom + np.abs(normal),
            top - np.abs(normal),
        ],
        default=normal,
    )
    return draws.astype(np.float32)


def random_actions(space: LeafSpace, rows: int, rng: np.random.Generator) -> NDArray[Any]:
    """Any actions of the space, equally often.  [rows] or [rows, …]"""
    match space:
        case DiscreteSpace(n=n):
            return rng.integers(n, size=rows)
        case MultiDiscreteSpace(nvec=nvec):
            return rng.integers(nvec, size=(rows, len(nvec)))
        case BoxSpace():
            return draw_from_box(space, rows, rng)


class RandomPolicy(Policy):
    """Draws from the action space, exploring or not."""

    def __init__(
        self,
        space: LeafSpace,
        rng: np.random.Generator,
        exploration: float | None = None,  # noqa: ARG002 - cannot act more randomly than it does
        *,
        masked: bool = False,
    ) -> None:
        self._space = space
        self._rng = rng
        self._masked = masked

    def load_snapshot(self, snapshot: Snapshot) -> None:
        """Nothing of a snapshot matters here."""

    def act(self, obs: Array, *, explore: bool) -> NDArray[Any]:  # noqa: ARG002 - never greedy
        if self._masked:
            return random_valid(self._space, split_mask(obs)[1], self._rng)
        return random_actions(self._space, num_rows(obs), self._rng)

    def state_dict(self) -> State:
        return {"generator": self._rng.bit_generator.state}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        restore_generator(self._rng, state["generator"])


class NetworkPolicy(Policy):
    """Random actions in the warm-up, then those of a network, which owns copies of the weights.

    The acting thread owns it and its generator.
    """

    greedy_form: GreedyForm | None = None  # None: its greedy actions are none of these
    _mask: NDArray[np.bool_] | None = None  # [N, n]  valid choices of what is acted on, if told

    def __init__(
        self, rng: np.random.Generator, *, network: MakeActing, actions: LeafSpace
    ) -> None:
        self.rng = rng
        self.network = network()
        self._actions = actions
        self._warm_up = False

    @abstractmethod
    def choose(self, outputs: NDArray[np.float32], *, explore: bool) -> NDArray[Any]:
        """Actions for the outputs of the network. [N, outputs] -> [N] or [N, A]"""

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
    """Takes the mask out of the observations that its network sees; a base beside another."""

    def act(self, obs: Array, *, explore: bool) -> NDArray[Any]:
        seen, self._mask = split_mask(obs)
        if explore and self._warm_up:
            return random_valid(self._actions, self._mask, self.rng)
        return super().act(seen, explore=explore)


class DiscretePolicy(NetworkPolicy):
    """Chooses among finitely many actions, by values or logits."""

    def __init__(
        self, rng: np.random.Generator, form: GreedyForm, *, network: MakeActing, space: LeafSpace
    ) -> None:
        super().__init__(rng, network=network, actions=space)
        self.greedy_form = form
        self.choice = Choice(form, space)

    @abstractmethod
    def pick(self, values: NDArray[np.float32]) -> NDArray[np.int64]:
        """A choice as it explores. [N, n] -> [N]"""

    def choose(self, outputs: NDArray[np.float32], *, explore: bool) -> NDArray[Any]:
        pick, values = self.pick if explore else greedy, self.choice.values(outputs)
        actions: NDArray[Any] = self.choice.actions(values, self._mask, pick)
        return actions


class QPolicy(DiscretePolicy):
    """Greedy in Q(s, ·), or exploring as the agent's settings say.

    A number as `exploration` is a constant epsilon or temperature. With `atoms`, v_min, v_max and
    their number, the network puts out logits of distributions, whose means are the values. If
    `noisy`, the weights are so while it explores.
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
            return softmax(values, self._exploration, self.rng)
        return self._epsilon_greedy(values, self._exploration)

    def state_dict(self) -> State:
        return {**super().state_dict(), **self._epsilon_greedy.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self._epsilon_greedy.load_state_dict(state)


class MaskedQPolicy(MaskedPolicy, QPolicy):
    """Valid actions only, by the mask in the observation."""

    epsilon_greedy = MaskedEpsilonGreedy


def q_policy(spec: EnvSpec) -> type[QPolicy]:
    """The policy of a Q-function in this environment."""
    return MaskedQPolicy if has_masks(spec.observation) else QPolicy


class CategoricalPolicy(DiscretePolicy):
    """Draws from the softmax of the logits to explore; else takes the most likely action.

    Of a MultiDiscrete space, whose components' logits lie side by side, each component by itself.
    `exploration` is the temperature.
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
        return softmax(values, self._temperature, self.rng)


class MaskedCategoricalPolicy(MaskedPolicy, CategoricalPolicy):
    """Valid actions only, by the mask in the observation."""


def categorical_policy(spec: EnvSpec, network: MakeActing) -> PolicyFactory:
    """The policy of logits in this environment."""
    kind = MaskedCategoricalPolicy if has_masks(spec.observation) else CategoricalPolicy
    return partial(kind, network=network, space=spec.action)
