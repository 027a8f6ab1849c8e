"""A saved policy for callers that step their own environment."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from border_cli.core.raw_values import (
    action_reader,
    as_array,
    batch_of,
    copy_values,
    make_converter,
)
from border_cli.core.spaces import ACTION_MASK, EnvSpec, has_masks, split_mask
from border_cli.core.types import Array, map_array
from border_cli.errors import BadStep, ConfigError


class LoadedPolicy:
    """A saved model that acts greedily; owned by the thread that calls it."""

    def __init__(self, act: Callable[..., NDArray[Any]], spec: EnvSpec) -> None:
        """`act` is a bound `Policy.act`. Raises ConfigError if `spec` lacks the environment's
        raw spaces."""
        if spec.raw is None:
            raise ConfigError(f"env.id={spec.id} does not provide its raw spaces (EnvSpec.raw)")
        self._act, self._spec, self._observation = act, spec, spec.raw.observation
        self._check, self._action = make_converter(spec.raw.observation), spec.raw.action
        self._read, self.actions = action_reader(spec.raw.action), batch_of(spec.raw.action)

    def act(self, obs: Any, action_mask: Any = None) -> Any:
        """Returns the action for one observation, or N actions for a batch of N observations.

        One observation has the shape of the environment's observation space, and its action can be
        passed to the environment's `step`. A batch has a leading axis N, in every array of a Dict
        observation, and its actions are one array [N, …], for the `step` of a vector environment.
        For a Discrete observation space, an integer is one observation and [N] is a batch. Raises
        BadStep for any other shape.

        If the environment returns an action mask in `info`, pass it as `action_mask`, also with a
        leading axis N for a batch.
        """
        if action_mask is not None:
            parts = obs if isinstance(obs, Mapping) else {"observation": obs}
            obs = {**parts, ACTION_MASK: action_mask}
        if has_masks(self._spec.observation) and isinstance(obs, Mapping) and ACTION_MASK in obs:
            obs = {**obs, ACTION_MASK: self._mask_part(obs[ACTION_MASK])}
        if self._spec.left_out and isinstance(obs, Mapping):
            obs = {key: part for key, part in obs.items() if key not in self._spec.left_out}
        rows, is_batch = self.rows(obs)
        actions = self._act(rows, explore=False)
        return self.actions(actions) if is_batch else self._read(actions)[0]

    def rows(self, obs: Any) -> tuple[Array, bool]:
        """Returns one observation or a batch as rows [N, …], and whether it is a batch."""
        lead = self._lead(obs)
        needs_mask = ACTION_MASK in self._observation.parts
        try:
            if needs_mask != (isinstance(obs, Mapping) and ACTION_MASK in obs):
                call = f'needs the action mask: act(obs, info["{ACTION_MASK}"])'
                raise BadStep(f"it {call if needs_mask else 'takes no action mask: act(obs)'}")
            rows = copy_values(self._check(obs, *lead))
            if has_masks(self._spec.observation) and not split_mask(rows)[1].any(axis=-1).all():
                raise BadStep(f"the {ACTION_MASK} leaves no action")
        except BadStep as error:
            raise error.within(f"env.id={self._spec.id}") from None
        return rows if lead else map_array(lambda part: part[None], rows), bool(lead)

    def _mask_part(self, mask: Any) -> Any:
        """Returns a mask of an environment as the part of the observation, like `env/masks.py`:
        joins a tuple, and gives each bit of a MultiBinary action two values. Other values are
        refused later. [n] or [N, n]"""
        parts = [as_array(part) for part in (mask if isinstance(mask, tuple) else (mask,))]
        arrays = [part for part in parts if part is not None and part.ndim]
        if len(arrays) < len(parts) or not all(np.isin(part, (0, 1)).all() for part in arrays):
            return mask
        valid = np.concatenate(arrays, axis=-1).astype(np.uint8)
        action = self._action
        if action.kind == "MultiBinary" and valid.shape[-1] == math.prod(action.shape):
            return np.stack([np.ones_like(valid), valid], axis=-1).reshape(*valid.shape[:-1], -1)
        return valid

    def _lead(self, obs: Any) -> tuple[int, ...]:
        """Returns (N,) for a batch, () for one observation; the first key of a Dict decides."""
        key, space = next(iter(self._observation.parts.items()))
        if key:
            obs = obs.get(key) if isinstance(obs, Mapping) else None
        values = as_array(obs)
        return () if values is None else values.shape[: values.ndim - len(space.shape)][:1]
