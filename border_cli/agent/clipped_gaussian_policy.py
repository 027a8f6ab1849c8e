"""Acting with a Gaussian that is cut to the bounds of the actions, in numpy alone."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from border_cli.agent.action_space import ActionBounds
from border_cli.agent.network_policy import NetworkPolicy, refuse_exploration
from border_cli.core.types import Snapshot
from border_cli.nn.architecture import Architecture


class ClippedGaussianPolicy(NetworkPolicy):
    """Explores with samples of N(tanh(x), std), and evaluates with tanh(x).

    The network puts out x; the deviations are weights of their own, the same in every state.
    """

    def __init__(
        self,
        rng: np.random.Generator,
        exploration: float | None = None,
        *,
        architecture: Architecture,
        bounds: ActionBounds,
        agent: str,
    ) -> None:
        refuse_exploration(exploration, agent)
        super().__init__(rng, architecture=architecture, actions=bounds.space)
        self._bounds = bounds
        self._std = np.ones(bounds.size, np.float32)

    def load_snapshot(self, snapshot: Snapshot) -> None:
        super().load_snapshot(snapshot)
        self._std = np.exp(snapshot.arrays["network.log_std"])

    def choose(self, outputs: NDArray[np.float32], *, explore: bool) -> NDArray[Any]:
        action = np.tanh(outputs)  # [N, A]
        if explore:
            action += self._std * self.rng.standard_normal(action.shape, np.float32)
        # In -1 … 1 as learned, then in the environment's units.
        return self._bounds.to_env(np.clip(action, -1, 1, out=action))
