"""Batches as learners use them, and the results of TD losses; arrays of numpy or torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from border_cli.core.spaces import ACTION_MASK, EnvSpec, allocate, split_mask
from border_cli.core.types import EPISODE, Array, Batch, Column, map_array
from border_cli.nn.arrays import AnyTensor

TensorObs: TypeAlias = AnyTensor | dict[str, AnyTensor]


class TensorBatch(NamedTuple):
    """The fields of `core.types.Batch` that updates use."""

    obs: TensorObs  # [B, …]
    action: AnyTensor  # [B, K] int64, K components, or [B, A] float32
    reward: AnyTensor  # [B, 1]
    discount: AnyTensor  # [B, 1]
    next_obs: TensorObs  # [B, …]
    weight: AnyTensor  # [B, 1]
    mask: AnyTensor | None = None  # [B, n] bool: valid actions in s; None means all
    next_mask: AnyTensor | None = None  # [B, n] bool: valid actions in s'
    # [B, 1] or [B, …] each: additional columns requested by the agent, or None
    extras: Mapping[str, AnyTensor] | None = None


class TargetDistribution(NamedTuple):
    """A distribution of the return for each transition, with arbitrary support."""

    positions: AnyTensor  # [B, N]
    probabilities: AnyTensor  # [B, N]


class TDResult(NamedTuple):
    """The gradient of a TD loss with respect to the outputs of the online network, and metrics."""

    grad_output: AnyTensor  # [B, outputs]
    td_error: AnyTensor  # [B, 1]  y - Q(s, a), or the distance of the distributions
    metrics: dict[str, AnyTensor]  # loss, q_mean: the mean of Q(s, a), …; [] each
    target: TargetDistribution | None = None  # for atoms, before the projection


# Takes the outputs of the online network for s, of the target network for s', and, if double, of
# the online network for s'; all [B, outputs].
TDLoss: TypeAlias = Callable[[AnyTensor, AnyTensor, AnyTensor | None, TensorBatch], TDResult]


def as_columns(batch: Batch, wrap: Callable[[NDArray[Any]], AnyTensor]) -> TensorBatch:
    """Converts the arrays of a batch by `wrap`, which decides whether memory is shared.

    One number per row becomes a column [B, 1]; action masks are split from observations.
    """

    def column(values: NDArray[Any]) -> AnyTensor:
        """[B] -> [B, 1]; [B, …] is unchanged"""
        return wrap(values[:, None] if values.ndim == 1 else values)

    (obs, mask), (next_obs, next_mask) = map(_split_mask, (batch.obs, batch.next_obs))
    extras = {name: column(part) for name, part in batch.extras.items() if name != EPISODE}
    return TensorBatch(
        obs=wrap_obs(obs, wrap),
        action=column(batch.action),
        reward=column(batch.reward),
        discount=column(batch.discount),
        next_obs=wrap_obs(next_obs, wrap),
        weight=column(batch.weight),
        mask=None if mask is None else wrap(mask),
        next_mask=None if next_mask is None else wrap(next_mask),
        extras=extras or None,
    )


def _split_mask(obs: Array) -> tuple[Array, NDArray[np.bool_] | None]:
    """Separates an action mask, if there is one."""
    return split_mask(obs) if isinstance(obs, dict) and ACTION_MASK in obs else (obs, None)


def wrap_obs(obs: Array, wrap: Callable[[NDArray[Any]], AnyTensor]) -> TensorObs:
    """Wraps the array of an observation, or those of its parts."""
    return {key: wrap(part) for key, part in obs.items()} if isinstance(obs, dict) else wrap(obs)


def empty_batch(spec: EnvSpec, rows: int, extras: Sequence[Column] = ()) -> Batch:
    """Returns a batch of zeros with this number of rows, for trial runs."""
    obs = map_array(np.zeros_like, allocate(spec.observation, rows))
    action = map_array(np.zeros_like, allocate(spec.action, rows))
    assert not isinstance(action, dict)
    zeros = np.zeros(rows, np.float32)
    return Batch(
        obs=obs,
        action=action,
        reward=zeros,
        discount=zeros,
        next_obs=obs,
        weight=zeros,
        index=np.zeros(rows, np.int64),
        extras={name: np.zeros((rows, *shape), dtype) for name, dtype, shape in extras},
    )
