"""Observations as rows of numbers, in torch. `numpy_encoder.py` computes the same for acting."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import TypeAlias

import torch
from torch import Tensor, nn

from border_cli.core.spaces import BoxSpace, DictSpace, DiscreteSpace, MultiDiscreteSpace, Space
from border_cli.nn.numpy_encoder import PIXEL_SCALE, encoded_size

TensorObs: TypeAlias = Tensor | dict[str, Tensor]


class Flatten(nn.Module):
    """Real numbers as they are, pixels (uint8) between 0 and 1."""

    def __init__(self, space: BoxSpace) -> None:
        super().__init__()
        self._size = encoded_size(space)
        self._pixels = space.dtype == "uint8"

    def forward(self, values: Tensor) -> Tensor:
        rows = values.reshape(len(values), self._size).float()
        return rows * PIXEL_SCALE if self._pixels else rows


class OneHot(nn.Module):
    """Each of K integers as a row with a single 1, side by side."""

    starts: Tensor  # [K]  the column of each integer's 0

    def __init__(self, counts: Sequence[int]) -> None:
        super().__init__()
        self._size = sum(counts)
        starts = torch.tensor([0, *accumulate(counts[:-1])])
        self.register_buffer("starts", starts, persistent=False)

    def forward(self, values: Tensor) -> Tensor:
        columns = values.reshape(len(values), -1) + self.starts  # [B, K]
        rows = torch.zeros(len(values), self._size, device=values.device)
        return rows.scatter_(1, columns, 1.0)


class Concatenation(nn.Module):
    """The parts of a Dict observation, in the order of the space's keys."""

    def __init__(self, space: DictSpace) -> None:
        super().__init__()
        # A list, because an nn.ModuleDict refuses keys such as "values" or "a.b".
        self._keys = tuple(space.spaces)
        self._parts = nn.ModuleList(encoder_for(part) for part in space.spaces.values())

    def forward(self, obs: dict[str, Tensor]) -> Tensor:
        rows = [part(obs[key]) for key, part in zip(self._keys, self._parts, strict=True)]
        return torch.cat(rows, dim=1)


def encoder_for(space: Space) -> nn.Module:
    """The encoder of an observation space: TensorObs [B, …] -> [B, encoded_size(space)] float32."""
    match space:
        case BoxSpace():
            return Flatten(space)
        case DiscreteSpace(n=n):
            return OneHot([n])
        case MultiDiscreteSpace(nvec=nvec):
            return OneHot(nvec)
        case DictSpace():
            return Concatenation(space)
