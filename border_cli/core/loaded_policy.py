"""A policy for callers that step an environment of their own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

from numpy.typing import NDArray

from border_cli.core.spaces import ACTION_MASK
from border_cli.core.types import Array

if TYPE_CHECKING:
    from border_cli.core.interfaces import Translator


class Acting(Protocol):
    """The part of a `Policy` that acts."""

    def act(self, obs: Array, *, explore: bool) -> NDArray[Any]:
        """Actions for N observations as rows."""


class LoadedPolicy:
    """Acts greedily with a saved model; owned by the thread that calls it."""

    def __init__(self, policy: Acting, translator: Translator) -> None:
        self._policy = policy
        self._translator = translator

    def act(self, obs: Any, action_mask: Any = None) -> Any:
        """The action for one observation, or N actions for a batch of N observations.

        One observation has the shape of the environment's observation space, and the action is as
        the environment's `step` wants it. A batch has N in front of that shape, in each array of a
        Dict observation, and the actions are one array [N, …], as the `step` of a vector
        environment wants them. For a Discrete observation space an integer is one observation and
        [N] is a batch. Raises BadStep for any other shape.

        Where the environment gives its action mask in `info`, it is the `action_mask`, of N
        observations N of them.
        """
        if action_mask is not None:
            parts = obs if isinstance(obs, Mapping) else {"observation": obs}
            obs = {**parts, ACTION_MASK: action_mask}
        count = self._translator.batch_size(obs)
        if count is None:
            row = self._translator.observation(obs)  # [1, …]
            return self._translator.action(self._policy.act(row, explore=False))
        rows = self._translator.observations(obs, count)  # [N, …]
        return self._translator.actions(self._policy.act(rows, explore=False))
