"""Acting on action values, in numpy alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from border_cli.agent.exploration import EpsilonGreedy, greedy, linear, softmax
from border_cli.agent.network_policy import NetworkPolicy
from border_cli.agent.value_config import Exploration, ValueConfig
from border_cli.core.errors import ConfigError
from border_cli.core.spaces import DiscreteSpace, Space
from border_cli.core.types import Snapshot, State


class QPolicy(NetworkPolicy):
    """Greedy, or exploring as the agent's settings say.

    `exploration` is a constant epsilon or temperature in place of the settings' own.
    """

    def __init__(
        self,
        config: ValueConfig,
        rng: np.random.Generator,
        exploration: float | None = None,
        *,
        observation: Space,
        num_actions: int,
    ) -> None:
        super().__init__(
            rng,
            architecture=config.architecture(observation),
            actions=DiscreteSpace(num_actions),
        )
        self._config = config
        self._constant = exploration
        self._hot = config.exploration == Exploration.softmax
        self._epsilon_greedy = EpsilonGreedy(rng)
        if exploration is not None and config.exploration == Exploration.greedy:
            raise ConfigError(
                "actor_manager.exploration must be null with agent.exploration=greedy, which has "
                f"neither epsilon nor temperature, got {exploration!r}"
            )
        if exploration is not None and exploration > 1 and not self._hot:
            raise ConfigError(
                "actor_manager.exploration must be at most 1 with "
                f"agent.exploration=epsilon_greedy, got {exploration!r}"
            )
        self._amount = self._amount_at(0)

    def load_snapshot(self, snapshot: Snapshot) -> None:
        super().load_snapshot(snapshot)
        self._amount = self._amount_at(snapshot.env_steps)

    def values(self, outputs: NDArray[np.float32]) -> NDArray[np.float32]:
        """Q(s, ·) out of what the network put out. [N, outputs] -> [N, num_actions]"""
        return outputs

    def choose(self, outputs: NDArray[np.float32], *, explore: bool) -> NDArray[Any]:
        q = self.values(outputs)  # [N, num_actions]
        if not explore or self._config.exploration == Exploration.greedy:
            return greedy(q)
        if self._hot:
            return softmax(q, self._amount, self.rng)
        return self._epsilon_greedy(q, self._amount)

    def state_dict(self) -> State:
        return {**super().state_dict(), **self._epsilon_greedy.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self._epsilon_greedy.load_state_dict(state)

    def _amount_at(self, env_steps: int) -> float:
        """Epsilon or temperature."""
        config = self._config
        if self._constant is not None:
            return self._constant
        if self._hot:
            return config.temperature
        return linear(config.epsilon_start, config.epsilon_final, env_steps / config.epsilon_steps)
