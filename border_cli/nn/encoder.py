"""Observations as rows of numbers, in torch. `numpy_encoder.py` computes the same for acting."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import TypeAlias

import torch
from torch import Tensor, nn

from border_cli.core.spaces import BoxSpace, DictSpace, DiscreteSpace, MultiDiscreteSpace, Space
from border_cli.nn.numpy_encoder import Scaling, encoded_size, row_scaling

TensorObs: TypeAlias = Tensor | dict[str, Tensor]


class Scaled(nn.Module):
    """A `Scaling` beside the weights, on their device and in no checkpoint: the space has it."""

    low: Tensor | float | None  # None: nothing is subtracted
    factor: Tensor | float | None  # None: nothing is multiplied

    def __init__(self, scaling: Scaling, *trailing: int) -> None:
        """`trailing` axes of 1 stand behind those of a number per channel."""
        super().__init__()
        for name, value, counts in (
            ("low", scaling.low, scaling.shifts),
            ("factor", scaling.factor, scaling.stretches),
        ):
            if counts and not isinstance(value, float):
                tensor = torch.from_numpy(value).view(-1, *trailing)
                self.register_buffer(name, tensor, persistent=False)
            else:
                setattr(self, name, value if counts else None)


class Flatten(Scaled):
    """Real numbers as they are, integers by their bounds between 0 and 1."""

    def __init__(self, space: BoxSpace) -> None:
        super().__init__(row_scaling(space))
        self._size = encoded_size(space)

    def forward(self, values: Tensor) -> Tensor:
        rows = values.reshape(len(values), self._size).float()
        if self.low is not None:
            rows = rows - self.low
        return rows if self.factor is None else rows * self.factor


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
