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
    """Acts on the mean of the quantiles within the agent's range.

    The last layer is linear, so its weights are averaged, and not what it puts out at every step.
    """

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
        self._last = f"network.mlp.layers.{len(config.hidden)}."
        self._shares = np.array(config.shares, np.float32)

    def make_network(
        self, arrays: Mapping[str, NDArray[Any]]
    ) -> Callable[[Array], NDArray[np.float32]]:
        weight, bias = arrays[f"{self._last}weight"], arrays[f"{self._last}bias"]
        by_quantile = weight.reshape(-1, len(self._shares), weight.shape[1])
        means = {
            f"{self._last}weight": np.einsum("aqi,q->ai", by_quantile, self._shares),
            f"{self._last}bias": bias.reshape(-1, len(self._shares)) @ self._shares,
        }
        return NumpyNetwork(self._architecture, {**arrays, **means}, "network.")


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
        return NumpyQuantileNetwork(self._architecture, arrays, "network.", self._fractions)
