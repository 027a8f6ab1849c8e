"""A sampled batch as tensors."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from numpy.typing import NDArray
from torch import Tensor

from border_cli.core.types import Array, Batch
from border_cli.nn.encoder import TensorObs


class TensorBatch(NamedTuple):
    """The fields of `core.types.Batch` that an update computes with."""

    obs: TensorObs  # [B, …]
    action: Tensor  # [B] int64, or [B, A] float32
    reward: Tensor  # [B]
    discount: Tensor  # [B]
    next_obs: TensorObs  # [B, …]
    weight: Tensor  # [B]


def to_tensors(batch: Batch, device: torch.device) -> TensorBatch:
    """The batch on `device`; on the CPU it shares the memory of `batch` and its short life."""

    def move(values: NDArray[Any]) -> Tensor:
        return torch.from_numpy(values).to(device, non_blocking=True)

    def move_obs(obs: Array) -> TensorObs:
        if isinstance(obs, dict):
            return {key: move(part) for key, part in obs.items()}
        return move(obs)

    return TensorBatch(
        obs=move_obs(batch.obs),
        action=move(batch.action),
        reward=move(batch.reward),
        discount=move(batch.discount),
        next_obs=move_obs(batch.next_obs),
        weight=move(batch.weight),
    )
