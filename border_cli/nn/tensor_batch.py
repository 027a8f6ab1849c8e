"""A sampled batch as tensors, and the result of a TD loss on it."""

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
    """The fields of `core.types.Batch` that an update computes with."""

    obs: TensorObs  # [B, …]
    action: Tensor  # [B, 1] int64, or [B, A] float32
    reward: Tensor  # [B, 1]
    discount: Tensor  # [B, 1]
    next_obs: TensorObs  # [B, …]
    weight: Tensor  # [B, 1]
    mask: Tensor | None = None  # [B, n] bool: the valid actions in s; None: all are
    next_mask: Tensor | None = None  # [B, n] … and in s'
    # [B, 1] or [B, …] each: the columns that the agent asks for; None: it asks for none
    extras: Mapping[str, Tensor] | None = None


class TargetDistribution(NamedTuple):
    """A distribution of the return for each row, wherever its mass stands."""

    positions: Tensor  # [B, N]
    probabilities: Tensor  # [B, N]


class TDResult(NamedTuple):
    """The TD loss of one batch, by its derivative by the outputs of the online network."""

    grad_output: Tensor  # [B, outputs]
    td_error: Tensor  # [B, 1]  y - Q(s, a); of distributions how far they are apart
    metrics: dict[str, Tensor]  # loss, q_mean: the mean of Q(s, a), …; [] each
    target: TargetDistribution | None = None  # of atoms, before it was projected


# From outputs for s of the online network, for s' of the target network, and, if double, for s' of
# the online network; all [B, outputs].
TDLoss: TypeAlias = Callable[[Tensor, Tensor, Tensor | None, TensorBatch], TDResult]


class TensorBatches:
    """Batches on a device; the learner's thread owns it. What it gives is valid until the next.

    A replay buffer writes all batches of one size to the same arrays, so their tensors are made
    once. On the CPU they are these arrays, unless they have their `own_memory`: contiguous and
    always the same, as a compiled update wants it.
    """

    def __init__(self, device: torch.device, *, own_memory: bool, has_masks: bool = False) -> None:
        """`has_masks`: see `core.spaces.has_masks`."""
        self._device = device
        self._to_tensors = _shared_masked if has_masks else _shared
        self._own_memory = own_memory or device.type != "cpu"
        self._batch: Batch | None = None  # whose arrays the tensors are

    def of(self, batch: Batch) -> TensorBatch:
        """The batch as tensors."""
        if batch is not self._batch:
            shared = self._to_tensors(batch)
            if not self._own_memory:
                self._tensors = shared
            else:
                if self._batch is None or len(batch) != len(self._tensors.reward):
                    self._tensors = tree_map_only(Tensor, self._like, shared)
                self._copied = _leaves(self._tensors), _leaves(shared)
            self._batch = batch
        if self._own_memory:
            torch._foreach_copy_(*self._copied, non_blocking=True)
        return self._tensors

    def _like(self, shared: Tensor) -> Tensor:
        return torch.empty(shared.shape, dtype=shared.dtype, device=self._device)


def tensor_obs(obs: Array) -> TensorObs:
    """Tensors that are the arrays of an observation."""
    if isinstance(obs, dict):
        return {key: torch.from_numpy(part) for key, part in obs.items()}
    return torch.from_numpy(obs)


def map_tensors(function: Callable[[Tensor], Tensor], obs: TensorObs) -> TensorObs:
    """Applies `function` to the tensor, or to each tensor of a dict."""
    if isinstance(obs, dict):
        return {key: function(part) for key, part in obs.items()}
    return function(obs)


def of_action(values: Tensor, action: Tensor) -> Tensor:
    """[B, num_actions, N], [B, 1] -> [B, N]"""
    return values.gather(1, _index(action, values)).squeeze(1)


def by_outputs(by_action: Tensor, values: Tensor, action: Tensor) -> Tensor:
    """The derivative by the outputs, from that by the N of them that are of the action.

    [B, N], [B, num_actions, N], [B, 1] -> [B, num_actions, N]
    """
    return torch.zeros_like(values).scatter_(1, _index(action, values), by_action[:, None])


def _index(action: Tensor, values: Tensor) -> Tensor:
    """[B, 1] -> [B, 1, N]"""
    return action[:, :, None].expand(-1, 1, values.shape[2])


def empty_batch(spec: EnvSpec, rows: int, extras: Sequence[Column] = ()) -> Batch:
    """Zeros in the shapes of every batch of so many rows, to try something out on."""
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


def _shared(batch: Batch) -> TensorBatch:
    """Tensors that are the arrays of the batch; numbers are columns, as Q-functions give them."""
    numbers = batch.action, batch.reward, batch.discount, batch.weight
    action, reward, discount, weight = map(_column, numbers)
    obs, next_obs = tensor_obs(batch.obs), tensor_obs(batch.next_obs)
    columns = batch.extras.items()
    extras = {name: _column(each) for name, each in columns if name != EPISODE}
    return TensorBatch(obs, action, reward, discount, next_obs, weight, extras=extras or None)


def _column(values: NDArray[Any]) -> Tensor:
    """[B] -> [B, 1]; [B, …] as it is"""
    return torch.from_numpy(values[:, None] if values.ndim == 1 else values)


def _shared_masked(batch: Batch) -> TensorBatch:
    """Tensors that are the arrays of the batch, the masks apart from what networks see."""
    obs, mask = split_mask(batch.obs)
    next_obs, next_mask = split_mask(batch.next_obs)
    return _shared(replace(batch, obs=obs, next_obs=next_obs))._replace(
        mask=torch.from_numpy(mask), next_mask=torch.from_numpy(next_mask)
    )


def masked(values: Tensor, mask: Tensor | None) -> Tensor:
    """-inf for what is invalid; the values themselves where there is no mask. [B, n]"""
    return values if mask is None else values.masked_fill(~mask, -torch.inf)


def _leaves(batch: TensorBatch) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(batch) if leaf is not None]
