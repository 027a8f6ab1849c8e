"""A sampled batch as tensors, and the result of a TD loss on it."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from border_cli.core.spaces import EnvSpec, allocate
from border_cli.core.types import Array, Batch, map_array
from border_cli.nn.features import TensorObs


class TensorBatch(NamedTuple):
    """The fields of `core.types.Batch` that an update computes with."""

    obs: TensorObs  # [B, …]
    action: Tensor  # [B, 1] int64, or [B, A] float32
    reward: Tensor  # [B, 1]
    discount: Tensor  # [B, 1]
    next_obs: TensorObs  # [B, …]
    weight: Tensor  # [B, 1]


class TargetDistribution(NamedTuple):
    """A distribution of the return for each row, wherever its mass stands."""

    positions: Tensor  # [B, N]
    probabilities: Tensor  # [B, N]


class TDResult(NamedTuple):
    """The TD loss of one batch, and its derivative by the outputs of the online network."""

    grad_output: Tensor  # [B, outputs]
    loss: Tensor  # []  without the conservative part
    q_mean: Tensor  # []  mean of Q(s, a)
    td_error: Tensor  # [B, 1]  y - Q(s, a); of distributions how far they are apart
    conservative_gap: Tensor | None = None  # []  mean of logsumexp Q(s, ·) - Q(s, a), if weighted
    target: TargetDistribution | None = None  # of atoms, before it was projected


class TensorBatches:
    """Batches on a device; the learner's thread owns it. What it gives is valid until the next.

    A replay buffer writes all batches of one size to the same arrays, so their tensors are made
    once. On the CPU they are these arrays, unless they have their `own_memory`: contiguous and
    always the same, as a compiled update wants it.
    """

    def __init__(self, device: torch.device, *, own_memory: bool) -> None:
        self._device = device
        self._own_memory = own_memory or device.type != "cpu"
        self._batch: Batch | None = None  # whose arrays the tensors are

    def of(self, batch: Batch) -> TensorBatch:
        """The batch as tensors."""
        if batch is not self._batch:
            self._batch = batch
            self._shared = _shared(batch)
            self._own = self._like(self._shared) if self._own_memory else self._shared
        if self._own_memory:
            torch._foreach_copy_(_leaves(self._own), _leaves(self._shared), non_blocking=True)
        return self._own

    def _like(self, shared: TensorBatch) -> TensorBatch:
        def empty(values: Tensor) -> Tensor:
            return torch.empty(values.shape, dtype=values.dtype, device=self._device)

        def empty_obs(obs: TensorObs) -> TensorObs:
            if isinstance(obs, dict):
                return {key: empty(part) for key, part in obs.items()}
            return empty(obs)

        return TensorBatch(*(empty_obs(each) for each in shared))  # type: ignore[arg-type]


def tensor_obs(obs: Array) -> TensorObs:
    """Tensors that are the arrays of an observation."""
    if isinstance(obs, dict):
        return {key: torch.from_numpy(part) for key, part in obs.items()}
    return torch.from_numpy(obs)


def of_action(values: Tensor, action: Tensor) -> Tensor:
    """[B, num_actions, N], [B, 1] -> [B, N]"""
    return values.gather(1, action_index(action, values.shape[2])).squeeze(1)


def action_index(action: Tensor, count: int) -> Tensor:
    """The index of the `count` numbers of an action. [B, 1] -> [B, 1, N]"""
    return action[:, :, None].expand(-1, 1, count)


def empty_batch(spec: EnvSpec, rows: int) -> Batch:
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
    )


def _shared(batch: Batch) -> TensorBatch:
    """Tensors that are the arrays of the batch."""

    def tensor(values: NDArray[Any]) -> Tensor:
        return torch.from_numpy(values)

    def column(values: NDArray[Any]) -> Tensor:
        """As values of Q-functions come, so that no update needs to change a shape."""
        return tensor(values[:, None] if values.ndim == 1 else values)

    return TensorBatch(
        obs=tensor_obs(batch.obs),
        action=column(batch.action),
        reward=column(batch.reward),
        discount=column(batch.discount),
        next_obs=tensor_obs(batch.next_obs),
        weight=column(batch.weight),
    )


def _leaves(batch: TensorBatch) -> list[Tensor]:
    leaves: list[Tensor] = []
    for each in batch:
        leaves += each.values() if isinstance(each, dict) else [each]
    return leaves


def conservative_gap(q: Tensor, action: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Mean of weight * (logsumexp Q(s, ·) - Q(s, a)), and its derivative by Q. [], [B, num_actions]

    CQL(H), equation 4 of Kumar et al. 2020, for Discrete actions; see `agent/cql.py`.
    """
    row_weight = weight / len(q)  # [B, 1]
    gap = torch.sum(row_weight * (q.logsumexp(1, keepdim=True) - q.gather(1, action)))
    return gap, (row_weight * q.softmax(1)).scatter_add_(1, action, -row_weight)
