"""What all policies that act with a network in numpy have in common."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from border_cli.agent.exploration import uniform
from border_cli.agent.random_policy import draw_from_box
from border_cli.core.errors import ConfigError
from border_cli.core.interfaces import Policy
from border_cli.core.seeding import restore_generator
from border_cli.core.spaces import BoxSpace, DiscreteSpace, LeafSpace
from border_cli.core.types import Array, Snapshot, State, num_rows
from border_cli.nn.architecture import Architecture
from border_cli.nn.numpy_network import NumpyNetwork


def refuse_exploration(exploration: float | None, agent: str) -> None:
    """Raises ConfigError where an actor is given a constant and the agent has no use for it."""
    if exploration is not None:
        raise ConfigError(
            f"actor_manager.exploration must be null with agent={agent}, which explores by "
            f"sampling its policy, got {exploration!r} for one actor"
        )


class NetworkPolicy(Policy):
    """Any action in the warm-up, then those of a network; owns copies of the weights.

    The thread that acts owns it, and the generator that it is given.
    """

    def __init__(
        self, rng: np.random.Generator, *, architecture: Architecture, actions: LeafSpace
    ) -> None:
        self.rng = rng
        self._architecture = architecture
        self._actions = actions
        self._network: Callable[[Array], NDArray[np.float32]] | None = None
        self._warm_up = False

    @abstractmethod
    def choose(self, outputs: NDArray[np.float32], *, explore: bool) -> NDArray[Any]:
        """Actions for what the network put out. [N, outputs] -> [N] or [N, A]"""

    def make_network(
        self, arrays: Mapping[str, NDArray[Any]]
    ) -> Callable[[Array], NDArray[np.float32]]:
        """What maps observations to outputs: [N, …] -> [N, outputs], a fresh array."""
        network = NumpyNetwork(self._architecture)
        network.load(arrays)
        return network

    def load_snapshot(self, snapshot: Snapshot) -> None:
        self._network = self.make_network(snapshot.arrays)
        self._warm_up = snapshot.warm_up

    def act(self, obs: Array, *, explore: bool) -> NDArray[Any]:
        if explore and self._warm_up:
            return self._any_action(num_rows(obs))
        assert self._network is not None, "load_snapshot comes before act"
        return self.choose(self._network(obs), explore=explore)

    def _any_action(self, rows: int) -> NDArray[Any]:
        if isinstance(self._actions, BoxSpace):
            return draw_from_box(self._actions, rows, self.rng)
        assert isinstance(self._actions, DiscreteSpace)
        return uniform(self._actions.n, rows, self.rng)

    def state_dict(self) -> State:
        return {"generator": self.rng.bit_generator.state}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        restore_generator(self.rng, state["generator"])
