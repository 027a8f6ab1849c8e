"""Observations as what networks take, in torch; `numpy_features.py` is the twin of this.

Rows of numbers [B, row_size] float32 where there is no image, images [B, C, H, W] where there is
nothing else, else a dict of both: the images by their keys and the rows under "".
"""

from __future__ import annotations

from typing import TypeAlias

import torch
from torch import Tensor, nn

from border_cli.core.config import NetworkKind
from border_cli.core.spaces import BoxSpace
from border_cli.nn.architecture import Architecture
from border_cli.nn.encoder import TensorObs, encoder_for
from border_cli.nn.images import ImpalaResNet, MinatarCnn, NatureCnn
from border_cli.nn.numpy_features import LIMIT, measured_columns
from border_cli.nn.statistics import RunningStatistics

FeatureTensors: TypeAlias = Tensor | dict[str, Tensor]

IMAGE_NETWORKS: dict[NetworkKind, type[MinatarCnn | NatureCnn | ImpalaResNet]] = {
    NetworkKind.minatar_cnn: MinatarCnn,
    NetworkKind.nature_cnn: NatureCnn,
    NetworkKind.impala_resnet: ImpalaResNet,
}


class Features(nn.Module):
    """Encodes an observation; with `normalize`, numbers get mean 0 and deviation 1.

    Integers go by their bounds or one-hot, whatever `normalize` says. Owns the float32 copies of
    the statistics.
    """

    mean: Tensor  # [row_size]
    inverse_std: Tensor  # [row_size]

    def __init__(self, architecture: Architecture, *, normalize: bool) -> None:
        super().__init__()
        space = architecture.rows
        self._rows = encoder_for(space) if space is not None else None
        self._bare = "" in architecture.images
        self._images = {key: each.channels_first for key, each in architecture.images.items()}
        # Vectors of numbers are features already: nothing needs to be called.
        self.changes_nothing = isinstance(space, BoxSpace) and (
            (len(space.shape), space.dtype, normalize) == (1, "float32", False)
        )
        self.normalizes = normalize and space is not None and architecture.row_size > 0
        if self.normalizes:
            assert space is not None
            self._stay = torch.from_numpy(~measured_columns(space))  # [row_size] bool, on the CPU
            self.register_buffer("mean", torch.zeros(architecture.row_size))
            self.register_buffer("inverse_std", torch.ones(architecture.row_size))

    def forward(self, obs: TensorObs) -> FeatureTensors:
        if not self._images:
            return self.rows(obs)
        if self._bare:
            assert isinstance(obs, Tensor)
            return _channels_first(obs, self._images[""])
        assert isinstance(obs, dict)
        features = {key: _channels_first(obs[key], first) for key, first in self._images.items()}
        if self._rows is not None:
            features[""] = self.rows(obs)
        return features

    def rows(self, obs: TensorObs) -> Tensor:
        """All but the images. [B, row_size]"""
        assert self._rows is not None
        rows: Tensor = self._rows(obs)
        if not self.normalizes:
            return rows
        return ((rows - self.mean) * self.inverse_std).clamp_(-LIMIT, LIMIT)

    def follow(self, statistics: RunningStatistics) -> None:
        """Normalises by what was seen so far."""
        self.mean.copy_(statistics.mean.masked_fill(self._stay, 0.0))
        self.inverse_std.copy_((1 / statistics.std).masked_fill(self._stay, 1.0))


class Torso(nn.Module):
    """Features as rows: images through convolutions, the rest beside them. [B, size]"""

    def __init__(self, architecture: Architecture, generator: torch.Generator) -> None:
        super().__init__()
        self._bare = "" in architecture.images
        self._keys = tuple(architecture.images)
        self._rows = architecture.rows is not None
        # A list, because an nn.ModuleDict refuses keys such as "values" or "a.b".
        networks = [
            IMAGE_NETWORKS[each.network](each.shape, generator, each.scaling)
            for each in architecture.images.values()
        ]
        self.images = nn.ModuleList(networks)
        self.size = architecture.row_size + sum(each.size for each in networks)

    def forward(self, features: FeatureTensors) -> Tensor:
        if not self._keys:
            assert isinstance(features, Tensor)
            return features
        if self._bare:
            result: Tensor = self.images[0](features)
            return result
        assert isinstance(features, dict)
        parts = [features[""]] if self._rows else []
        parts += [
            network(features[key]) for key, network in zip(self._keys, self.images, strict=True)
        ]
        return torch.cat(parts, dim=1)


def _channels_first(images: Tensor, first: bool) -> Tensor:
    """[B, C, H, W] from that, [B, H, W, C] or [B, H, W]."""
    if images.dim() == 3:
        return images[:, None]
    return images if first else images.permute(0, 3, 1, 2)
