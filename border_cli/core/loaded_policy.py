"""A policy for callers that step an environment of their own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from numpy.typing import NDArray

from border_cli.core.raw_values import action_reader, as_array, batch_of, copied, observations
from border_cli.core.spaces import ACTION_MASK, EnvSpec, has_masks, split_mask
from border_cli.core.types import Array, map_array
from border_cli.errors import BadStep, ConfigError


class LoadedPolicy:
    """Acts greedily with a saved model; owned by the thread that calls it."""

    def __init__(self, act: Callable[..., NDArray[Any]], spec: EnvSpec) -> None:
        """`act` is that of a `Policy`. Raises ConfigError where the environment does not tell its
        spaces as they are."""
        if spec.raw is None:
            raise ConfigError(f"env.id={spec.id} does not tell its raw spaces (EnvSpec.raw)")
        self._act, self._spec, self._observation = act, spec, spec.raw.observation
        self._check = observations(spec.raw.observation)
        self._read, self.actions = action_reader(spec.raw.action), batch_of(spec.raw.action)

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
        rows, is_batch = self.rows(obs)
        actions = self._act(rows, explore=False)
        return self.actions(actions) if is_batch else self._read(actions)[0]

    def rows(self, obs: Any) -> tuple[Array, bool]:
        """One observation, or N, as rows [N, …], and whether they are a batch."""
        lead = self._lead(obs)
        takes_mask = ACTION_MASK in self._observation.parts
        try:
            if takes_mask != (isinstance(obs, Mapping) and ACTION_MASK in obs):
                call = f'needs the action mask: act(obs, info["{ACTION_MASK}"])'
                raise BadStep(f"it {call if takes_mask else 'takes no action mask: act(obs)'}")
            rows = copied(self._check(obs, *lead))
            if has_masks(self._spec.observation) and not split_mask(rows)[1].any(axis=-1).all():
                raise BadStep(f"the {ACTION_MASK} leaves no action")
        except BadStep as error:
            raise error.within(f"env.id={self._spec.id}") from None
        return rows if lead else map_array(lambda part: part[None], rows), bool(lead)

    def _lead(self, obs: Any) -> tuple[int, ...]:
        """The axis that a batch has in front; of a Dict the first key decides."""
        key, space = next(iter(self._observation.parts.items()))
        if key:
            obs = obs.get(key) if isinstance(obs, Mapping) else None
        values = as_array(obs)
        return () if values is None else values.shape[: values.ndim - len(space.shape)][:1]
