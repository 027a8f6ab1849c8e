"""Acting on the values of a deep Q-network in all its forms, in numpy alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from border_cli.agent.q_policy import QPolicy
from border_cli.agent.value_config import DqnConfig
from border_cli.core.spaces import Space
from border_cli.core.types import Array
from border_cli.nn.numpy_network import NumpyValueNetwork


class DqnPolicy(QPolicy):
    """Acts on values or on means of distributions; with noisy weights where it explores."""

    def __init__(
        self,
        config: DqnConfig,
        rng: np.random.Generator,
        exploration: float | None = None,
        *,
        observation: Space,
        num_actions: int,
    ) -> None:
        super().__init__(config, rng, exploration, observation=observation, num_actions=num_actions)
        self._form = config
        self._values: NumpyValueNetwork | None = None  # None where the network is a plain one
        self._atoms = np.linspace(config.v_min, config.v_max, config.num_atoms, dtype=np.float32)

    def make_network(
        self, arrays: Mapping[str, NDArray[Any]]
    ) -> Callable[[Array], NDArray[np.float32]]:
        if self._form.plain:
            return super().make_network(arrays)
        self._values = NumpyValueNetwork(self._architecture, atoms=self._form.num_atoms)
        self._values.load(arrays)
        return self._values

    def act(self, obs: Array, *, explore: bool) -> NDArray[Any]:
        if self._form.noisy and self._values is not None:
            self._values.noise = self.rng if explore else None
        return super().act(obs, explore=explore)

    def values(self, outputs: NDArray[np.float32]) -> NDArray[np.float32]:
        if not self._form.categorical:
            return outputs
        logits = outputs.reshape(len(outputs), -1, len(self._atoms))  # [N, num_actions, atoms]
        odds = np.exp(logits - logits.max(axis=2, keepdims=True))
        q: NDArray[np.float32] = odds.dot(self._atoms) / odds.sum(axis=2)
        return q
