"""Acting on means of quantiles, in numpy alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from border_cli.agent.q_policy import QPolicy
from border_cli.agent.value_config import IqnConfig, QrdqnConfig
from border_cli.core.spaces import Space
from border_cli.core.types import Array
from border_cli.nn.numpy_network import NumpyNetwork, NumpyQuantileNetwork


class QrdqnPolicy(QPolicy):
    """Acts on the mean of the quantiles within the agent's range."""

    def __init__(
        self,
        config: QrdqnConfig,
        rng: np.random.Generator,
        exploration: float | None = None,
        *,
        observation: Space,
        num_actions: int,
    ) -> None:
        super().__init__(config, rng, exploration, observation=observation, num_actions=num_actions)
        self._shares = config.shares

    def make_network(
        self, arrays: Mapping[str, NDArray[Any]]
    ) -> Callable[[Array], NDArray[np.float32]]:
        network = NumpyNetwork(self._architecture, self._shares)
        network.load(arrays)
        return network


class IqnPolicy(QPolicy):
    """Acts on the mean of the quantiles at fractions spread evenly over the agent's range.

    The paper draws the fractions anew for each action; even ones have less noise, and exploring is
    the business of epsilon or the temperature.
    """

    def __init__(
        self,
        config: IqnConfig,
        rng: np.random.Generator,
        exploration: float | None = None,
        *,
        observation: Space,
        num_actions: int,
    ) -> None:
        super().__init__(config, rng, exploration, observation=observation, num_actions=num_actions)
        self._fractions = config.fractions

    def make_network(
        self, arrays: Mapping[str, NDArray[Any]]
    ) -> Callable[[Array], NDArray[np.float32]]:
        network = NumpyQuantileNetwork(self._architecture, self._fractions)
        network.load(arrays)
        return network
