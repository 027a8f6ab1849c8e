"""Encoding of observations as inputs of networks, in torch; `encoding.py` encodes rows for acting.

Features are rows of numbers [B, row_size] float32, or an image [B, C, H, W] if it is the whole
observation. For a Dict with images, they are a dict of the images by their keys, and of the rows
under "". With a user's network, they are the observation itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from border_cli.core.spaces import BoxSpace, DictSpace, DiscreteSpace, MultiDiscreteSpace, Space
from border_cli.nn.architecture import Architecture, Image
from border_cli.nn.encoding import (
    LIMIT,
    Scaling,
    encoded_size,
    is_vector,
    measured_columns,
    row_scaling,
)

TensorObs: TypeAlias = Tensor | dict[str, Tensor]
FeatureTensors: TypeAlias = Tensor | dict[str, Tensor]


class Features(nn.Module):
    """Encodes observations; `normalize` gives real numbers mean 0 and standard deviation 1.

    Integers are one-hot encoded or scaled, see `scaling_between`. A user's network receives the
    observation itself, with its real numbers normalised. Owns the float32 copies of the statistics.
    """

    mean: Tensor  # [row_size]
    inverse_std: Tensor  # [row_size]

    def __init__(self, architecture: Architecture, *, normalize: bool) -> None:
        super().__init__()
        space = architecture.rows
        self._rows = encoder_for(space) if space is not None else None
        self._bare = "" in architecture.images
        self._images = architecture.images
        self._keeps_structure = architecture.target is not None
        self._sizes = {
            key: encoded_size(part)
            for key, part in (space.spaces if isinstance(space, DictSpace) else {}).items()
        }
        self.normalizes = normalize and space is not None and architecture.row_size > 0
        # Float vectors need no encoding, and a user's network encodes for itself.
        vectors = space is not None and is_vector(space)
        self.changes_nothing = (vectors or self._keeps_structure) and not normalize
        if self.normalizes:
            assert space is not None
            self._measured = measured_columns(space)  # [row_size] bool
            self.register_buffer("mean", torch.zeros(architecture.row_size))
            self.register_buffer("inverse_std", torch.ones(architecture.row_size))

    def forward(self, obs: TensorObs) -> FeatureTensors:
        if self._keeps_structure:
            return self._normalize_parts(obs) if self.normalizes else obs
        if not self._images:
            return self.rows(obs)
        if self._bare:
            assert isinstance(obs, Tensor)
            return _channels_first(obs, self._images[""])
        assert isinstance(obs, dict)
        features = {key: _channels_first(obs[key], image) for key, image in self._images.items()}
        if self._rows is not None:
            features[""] = self.rows(obs)
        return features

    def _normalize_parts(self, obs: TensorObs) -> TensorObs:
        """Returns the observation with its real numbers normalised."""
        rows = self.rows(obs)
        if isinstance(obs, Tensor):
            return rows.view_as(obs)
        parts = rows.split_with_sizes(list(self._sizes.values()), dim=1)
        columns = zip(self._sizes, parts, strict=True)
        return {**obs, **{key: part.reshape(obs[key].shape) for key, part in columns}}

    def rows(self, obs: TensorObs) -> Tensor:
        """Encodes everything except images. [B, row_size]"""
        assert self._rows is not None
        rows: Tensor = self._rows(obs)
        if not self.normalizes:
            return rows
        return ((rows - self.mean) * self.inverse_std).clamp_(-LIMIT, LIMIT)

    def refresh(self, mean: NDArray[Any], std: NDArray[Any]) -> None:
        """Replaces the mean and standard deviation used for normalisation. [row_size]"""
        self.mean.copy_(torch.from_numpy(np.where(self._measured, mean, 0)))
        self.inverse_std.copy_(torch.from_numpy(np.where(self._measured, 1 / std, 1)))


def _channels_first(images: Tensor, image: Image) -> Tensor:
    """Returns images [B, C, H, W] of observations [B, …]; only stacks may be copied."""
    return images.permute(image.batch_axes).reshape(-1, *image.shape)


def encoder_for(space: Space) -> nn.Module:
    """Builds the encoder of a space: TensorObs [B, …] -> [B, encoded_size(space)] float32."""
    match space:
        case BoxSpace():
            return Flatten(space)
        case DiscreteSpace(n=n):
            return OneHot([n])
        case MultiDiscreteSpace(nvec=nvec):
            return OneHot(nvec)
        case DictSpace():
            return Concatenation(space)


class Scaled(nn.Module):
    """A module with a `Scaling` on its device. Checkpoints omit it: the space determines it."""

    low: Tensor | float | None  # None means no subtraction
    factor: Tensor | float | None  # None means no multiplication

    def __init__(self, scaling: Scaling, *trailing: int) -> None:
        """Appends `trailing` axes of size 1 to numbers per channel."""
        super().__init__()
        for name, value, is_needed in (
            ("low", scaling.low, scaling.shifts),
            ("factor", scaling.factor, scaling.stretches),
        ):
            if is_needed and not isinstance(value, float):
                tensor = torch.from_numpy(value).view(-1, *trailing)
                self.register_buffer(name, tensor, persistent=False)
            else:
                setattr(self, name, value if is_needed else None)


class Flatten(Scaled):
    """Flattens observations; integers are scaled to 0 … 1 by their bounds, real numbers are not."""

    def __init__(self, space: BoxSpace) -> None:
        super().__init__(row_scaling(space))
        self._size = encoded_size(space)

    def forward(self, values: Tensor) -> Tensor:
        rows = values.reshape(values.shape[0], self._size).float()
        if self.low is not None:
            rows = rows - self.low
        return rows if self.factor is None else rows * self.factor


class OneHot(nn.Module):
    """Encodes K integers as concatenated one-hot vectors."""

    starts: Tensor  # [K]  first column of each integer

    def __init__(self, counts: Sequence[int]) -> None:
        super().__init__()
        self._size = sum(counts)
        starts = torch.tensor([0, *accumulate(counts[:-1])])
        self.register_buffer("starts", starts, persistent=False)

    def forward(self, values: Tensor) -> Tensor:
        columns = values.reshape(values.shape[0], -1) + self.starts  # [B, K]
        rows = torch.zeros(values.shape[0], self._size, device=values.device)
        return rows.scatter_(1, columns, 1.0)


class Concatenation(nn.Module):
    """Concatenates the encoded parts of a Dict observation, in the order of its keys."""

    def __init__(self, space: DictSpace) -> None:
        super().__init__()
        # A list, because nn.ModuleDict rejects keys such as "values" or "a.b".
        self._keys = tuple(space.spaces)
        self._parts = nn.ModuleList(encoder_for(part) for part in space.spaces.values())

    def forward(self, obs: dict[str, Tensor]) -> Tensor:
        rows = [part(obs[key]) for key, part in zip(self._keys, self._parts, strict=True)]
        return torch.cat(rows, dim=1)


class Torso(nn.Module):
    """The network before the dense layers. This base class returns rows unchanged. [B, size]"""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size

    def forward(self, features: FeatureTensors) -> Tensor:
        assert isinstance(features, Tensor)
        return features
