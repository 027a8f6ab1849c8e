"""Sampled batches as tensors, and the results of TD losses."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map_only

from border_cli.core.spaces import EnvSpec, allocate, split_mask
from border_cli.core.types import EPISODE, Array, Batch, Column, map_array
from border_cli.nn.features import TensorObs


class TensorBatch(NamedTuple):
    """The fields of `core.types.Batch` that updates use."""

    obs: TensorObs  # [B, …]
    action: Tensor  # [B, 1] int64, or [B, A] float32
    reward: Tensor  # [B, 1]
    discount: Tensor  # [B, 1]
    next_obs: TensorObs  # [B, …]
    weight: Tensor  # [B, 1]
    mask: Tensor | None = None  # [B, n] bool: valid actions in s; None means all
    next_mask: Tensor | None = None  # [B, n] bool: valid actions in s'
    # [B, 1] or [B, …] each: additional columns requested by the agent, or None
    extras: Mapping[str, Tensor] | None = None


class TargetDistribution(NamedTuple):
    """A distribution of the return for each transition, with arbitrary support."""

    positions: Tensor  # [B, N]
    probabilities: Tensor  # [B, N]


class TDResult(NamedTuple):
    """The gradient of a TD loss with respect to the outputs of the online network, and metrics."""

    grad_output: Tensor  # [B, outputs]
    td_error: Tensor  # [B, 1]  y - Q(s, a), or the distance of the distributions
    metrics: dict[str, Tensor]  # loss, q_mean: the mean of Q(s, a), …; [] each
    target: TargetDistribution | None = None  # for atoms, before the projection


# Takes the outputs of the online network for s, of the target network for s', and, if double, of
# the online network for s'; all [B, outputs].
TDLoss: TypeAlias = Callable[[Tensor, Tensor, Tensor | None, TensorBatch], TDResult]


class TensorBatches:
    """Batches as tensors on a device, each valid until the next one; owned by the learner's thread.

    A replay buffer writes all batches of one size to the same arrays, so the tensors are created
    once. On the CPU they share the arrays' memory, unless `own_memory` is set: then they are
    contiguous and never move, as a compiled update requires.
    """

    def __init__(self, device: torch.device, *, own_memory: bool, has_masks: bool = False) -> None:
        """`has_masks`: see `core.spaces.has_masks`."""
        self._device = device
        self._to_tensors = _share_masked if has_masks else _share_memory
        self._own_memory = own_memory or device.type != "cpu"
        self._batch: Batch | None = None  # source of the tensors

    def convert(self, batch: Batch) -> TensorBatch:
        """Returns the batch as tensors."""
        if batch is not self._batch:
            shared = self._to_tensors(batch)
            if not self._own_memory:
                self._tensors = shared
            else:
                if self._batch is None or len(batch) != len(self._tensors.reward):
                    self._tensors = tree_map_only(Tensor, self._like, shared)
                self._copy_lists = _leaves(self._tensors), _leaves(shared)
            self._batch = batch
        if self._own_memory:
            torch._foreach_copy_(*self._copy_lists, non_blocking=True)
        return self._tensors

    def _like(self, shared: Tensor) -> Tensor:
        return torch.empty(shared.shape, dtype=shared.dtype, device=self._device)


def tensor_obs(obs: Array) -> TensorObs:
    """Returns tensors that share memory with an observation."""
    if isinstance(obs, dict):
        return {key: torch.from_numpy(part) for key, part in obs.items()}
    return torch.from_numpy(obs)


def map_tensors(function: Callable[[Tensor], Tensor], obs: TensorObs) -> TensorObs:
    """Applies `function` to the tensor, or to each tensor of a dict."""
    if isinstance(obs, dict):
        return {key: function(part) for key, part in obs.items()}
    return function(obs)


def select_action_values(values: Tensor, action: Tensor) -> Tensor:
    """Selects the values of an action. [B, num_actions, N], [B, 1] -> [B, N]"""
    return values.gather(1, _expand_action(action, values)).squeeze(1)


def expand_gradient(by_action: Tensor, values: Tensor, action: Tensor) -> Tensor:
    """Returns the gradient with respect to all outputs, given the one for the action's outputs.

    [B, N], [B, num_actions, N], [B, 1] -> [B, num_actions, N]
    """
    return torch.zeros_like(values).scatter_(1, _expand_action(action, values), by_action[:, None])


def _expand_action(action: Tensor, values: Tensor) -> Tensor:
    """[B, 1] -> [B, 1, N]"""
    return action[:, :, None].expand(-1, 1, values.shape[2])


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


def _share_memory(batch: Batch) -> TensorBatch:
    """Returns tensors that share memory with the batch; numbers become columns, like Q-values."""
    numbers = batch.action, batch.reward, batch.discount, batch.weight
    action, reward, discount, weight = map(_to_column, numbers)
    obs, next_obs = tensor_obs(batch.obs), tensor_obs(batch.next_obs)
    columns = batch.extras.items()
    extras = {name: _to_column(values) for name, values in columns if name != EPISODE}
    return TensorBatch(obs, action, reward, discount, next_obs, weight, extras=extras or None)


def _to_column(values: NDArray[Any]) -> Tensor:
    """[B] -> [B, 1]; [B, …] is unchanged"""
    return torch.from_numpy(values[:, None] if values.ndim == 1 else values)


def _share_masked(batch: Batch) -> TensorBatch:
    """Returns tensors that share memory with the batch, with masks separated from observations."""
    obs, mask = split_mask(batch.obs)
    next_obs, next_mask = split_mask(batch.next_obs)
    return _share_memory(replace(batch, obs=obs, next_obs=next_obs))._replace(
        mask=torch.from_numpy(mask), next_mask=torch.from_numpy(next_mask)
    )


def mask_invalid(values: Tensor, mask: Tensor | None) -> Tensor:
    """Returns the values, with -inf for invalid actions; without a mask all are valid. [B, n]"""
    return values if mask is None else values.masked_fill(~mask, -torch.inf)


def _leaves(batch: TensorBatch) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(batch) if leaf is not None]
