"""Acting with a Gaussian that tanh squashes into the bounds of the actions, in numpy alone."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from border_cli.agent.action_space import ActionBounds
from border_cli.agent.network_policy import NetworkPolicy, refuse_exploration
from border_cli.nn.architecture import SQUASHED_LOG_STD_MAX, SQUASHED_LOG_STD_MIN, Architecture


class GaussianPolicy(NetworkPolicy):
    """Explores with samples of its distribution, and evaluates with tanh(mean).

    The network puts out mean and log_std side by side, as `nn.gaussian.split` takes them.
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
        super().__init__(rng, architecture=architecture, actions=bounds.space)
        self._bounds = bounds
        refuse_exploration(exploration, agent)

    def choose(self, outputs: NDArray[np.float32], *, explore: bool) -> NDArray[Any]:
        size = self._bounds.size
        before: NDArray[Any] = outputs[:, :size]  # [N, A]
        if explore:
            # Half of what np.clip takes for one row.
            log_std = np.maximum(outputs[:, size:], SQUASHED_LOG_STD_MIN)
            log_std = np.minimum(log_std, SQUASHED_LOG_STD_MAX)
            before = before + np.exp(log_std) * self.rng.standard_normal(before.shape, np.float32)
        return self._bounds.to_env(np.tanh(before))
