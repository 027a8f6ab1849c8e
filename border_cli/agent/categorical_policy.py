"""Acting on the logits of a distribution over actions, in numpy alone."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from border_cli.agent.exploration import greedy, softmax
from border_cli.agent.network_policy import NetworkPolicy, refuse_exploration
from border_cli.core.spaces import DiscreteSpace
from border_cli.nn.architecture import Architecture


class CategoricalPolicy(NetworkPolicy):
    """Draws from the softmax of the logits to explore; else takes the most likely action.

    `agent` is the name in the refusal of `exploration`: what it learns is how to explore.
    """

    def __init__(
        self,
        rng: np.random.Generator,
        exploration: float | None = None,
        *,
        architecture: Architecture,
        num_actions: int,
        agent: str,
    ) -> None:
        refuse_exploration(exploration, agent)
        super().__init__(rng, architecture=architecture, actions=DiscreteSpace(num_actions))

    def choose(self, outputs: NDArray[np.float32], *, explore: bool) -> NDArray[Any]:
        return softmax(outputs, 1.0, self.rng) if explore else greedy(outputs)
