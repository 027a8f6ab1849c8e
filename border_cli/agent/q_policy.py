"""Acting on the values of a Q-network, in numpy alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from border_cli.agent.config import DqnConfig, Exploration
from border_cli.agent.exploration import EpsilonGreedy, greedy, linear, softmax, uniform
from border_cli.core.errors import ConfigError
from border_cli.core.interfaces import Policy
from border_cli.core.seeding import restore_generator
from border_cli.core.spaces import Space
from border_cli.core.types import Array, Snapshot, State, num_rows
from border_cli.nn.numpy_encoder import encoder
from border_cli.nn.numpy_mlp import NumpyMlp


class QPolicy(Policy):
    """Greedy, or exploring as the agent's settings say; owns copies of the weights.

    `exploration` is a constant epsilon or temperature in place of the settings' own.
    """

    def __init__(
        self,
        config: DqnConfig,
        rng: np.random.Generator,
        exploration: float | None = None,
        *,
        observation: Space,
        num_actions: int,
    ) -> None:
        self._config = config
        self._encode = encoder(observation)
        self._num_actions = num_actions
        self._rng = rng
        self._constant = exploration
        self._hot = config.exploration == Exploration.softmax
        self._epsilon_greedy = EpsilonGreedy(rng)
        if exploration is not None and exploration > 1 and not self._hot:
            raise ConfigError(
                "actor_manager.exploration must be at most 1 where agent.exploration is "
                f"epsilon_greedy, got {exploration!r}"
            )
        self._mlp: NumpyMlp | None = None
        self._warm_up = False
        self._amount = self._amount_at(0)

    def load_snapshot(self, snapshot: Snapshot) -> None:
        self._mlp = NumpyMlp(snapshot.arrays, prefix="mlp.")
        self._warm_up = snapshot.warm_up
        self._amount = self._amount_at(snapshot.env_steps)

    def act(self, obs: Array, *, explore: bool) -> NDArray[Any]:
        if explore and self._warm_up:
            return uniform(self._num_actions, num_rows(obs), self._rng)
        assert self._mlp is not None, "load_snapshot comes before act"
        q = self._mlp(self._encode(obs))  # [N, num_actions]
        if not explore:
            return greedy(q)
        if self._hot:
            return softmax(q, self._amount, self._rng)
        return self._epsilon_greedy(q, self._amount)

    def state_dict(self) -> State:
        return {"generator": self._rng.bit_generator.state, **self._epsilon_greedy.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        restore_generator(self._rng, state["generator"])
        self._epsilon_greedy.load_state_dict(state)

    def _amount_at(self, env_steps: int) -> float:
        """Epsilon or temperature."""
        config = self._config
        if self._constant is not None:
            return self._constant
        if self._hot:
            return config.temperature
        return linear(config.epsilon_start, config.epsilon_final, env_steps / config.epsilon_steps)
