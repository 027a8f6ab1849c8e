"""Convolutional networks for images, in torch; `numpy_images.py` computes the same for acting.

MinatarCnn: Young and Tian 2019, "MinAtar: an Atari-inspired testbed for thorough and reproducible
reinforcement learning experiments".
NatureCnn: Mnih et al. 2015, "Human-level control through deep reinforcement learning".
DerCnn: van Hasselt, Hessel and Aslanides 2019, "When to use parametric models in reinforcement
learning?", data-efficient Rainbow.
ImpalaResNet: Espeholt et al. 2018, "IMPALA: scalable distributed deep-RL with importance weighted
actor-learner architectures", Figure 3, right, without the LSTM.

The dense layer that follows in each paper is not included: it is the first of the agent's `hidden`.
"""

from __future__ import annotations

from itertools import pairwise
from typing import ClassVar

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 - as all of torch's users call it
from torch import Tensor, nn

from border_cli.nn.architecture import (
    DER_WINDOWS,
    IMPALA_BLOCKS,
    IMPALA_SECTIONS,
    MINATAR_WINDOWS,
    NATURE_WINDOWS,
    Architecture,
    ConvolutionWindow,
    impala_side,
    size_after,
)
from border_cli.nn.encoding import BYTES, Scaling
from border_cli.nn.features import FeatureTensors, Scaled, Torso
from border_cli.nn.initial_weights import fill_truncated_normal, fill_uniform
from border_cli.nn.matmul import rounds_convolutions

IMPALA_SIDE = 3  # side of every window, in pixels


class Convolution(nn.Module):
    """`nn.Conv2d` with a square window; the network that contains it initialises it."""

    def __init__(
        self, inputs: int, outputs: int, side: int, *, stride: int = 1, padding: int = 0
    ) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(outputs, inputs, side, side))
        self.bias = nn.Parameter(torch.empty(outputs))
        self._stride = stride
        self._padding = padding

    @property
    def fan_in(self) -> int:
        """Number of inputs per output."""
        return self.weight[0].numel()

    def forward(self, images: Tensor, scale: Tensor | float | None = None) -> Tensor:
        """Convolves `scale` times the images. [B, inputs, H, W] -> [B, outputs, H', W']"""
        # The two reshapes leave the weight unchanged, but give its gradient the weight's memory
        # layout. For channels-last images, the gradient would be channels last, too, and Adam's
        # fused kernel would silently misread it.
        weight = self.weight.flatten(1).view(self.weight.shape)
        if scale is not None:
            weight = weight * scale  # cheaper than scaling the pixels
        weight, bias = weight.to(images.dtype), self.bias.to(images.dtype)
        return F.conv2d(images, weight, bias, self._stride, self._padding)


class PlainCnn(Scaled):
    """Convolutions with ReLU, from pixels (as integers or floats) to rows."""

    windows: ClassVar[tuple[ConvolutionWindow, ...]]
    layout: ClassVar[torch.memory_format] = torch.channels_last
    rounds: bool = False  # see `matmul.rounds_convolutions`

    def __init__(
        self, shape: tuple[int, int, int], rng: np.random.Generator, scaling: Scaling = BYTES
    ) -> None:
        super().__init__(scaling, 1, 1)
        counts = [shape[0], *(conv.outputs for conv in self.windows)]
        self.convolutions = nn.ModuleList(
            Convolution(inputs, outputs, window.side, stride=window.stride)
            for (inputs, outputs), window in zip(pairwise(counts), self.windows, strict=True)
        )
        self.size = size_after(self.windows, shape)
        for layer in _convolutions_of(self):  # U(-k, k), Torch 7's default in the paper's code
            bound = layer.fan_in**-0.5
            fill_uniform(layer.weight.detach().numpy(), bound, rng)
            fill_uniform(layer.bias.detach().numpy(), bound, rng)

    def forward(self, images: Tensor) -> Tensor:
        """[B, C, H, W] -> [B, size]"""
        first, *others = self.convolutions
        assert isinstance(first, Convolution)  # for mypy
        # In place below, because inputs of a ReLU are not needed again.
        dtype, layout = first.weight.dtype, self.layout
        if self.rounds and dtype is torch.float32 and images.device.type == "cpu":
            # Channels first takes 0.6 of the time of channels last here.
            dtype, layout = torch.bfloat16, torch.contiguous_format
        images = _prepare_images(images, dtype, self.low, layout)
        images = torch.relu_(first(images, self.factor))
        for convolution in others:
            images = torch.relu_(convolution(images))
        return images.flatten(1).to(first.weight.dtype)


class MinatarCnn(PlainCnn):
    """A single convolution, for images of a few pixels."""

    windows = MINATAR_WINDOWS
    layout = torch.contiguous_format  # channels last takes 1.4 times as long for so few pixels


class NatureCnn(PlainCnn):
    """Three convolutions."""

    windows = NATURE_WINDOWS


class DerCnn(PlainCnn):
    """Two convolutions with windows that do not overlap."""

    windows = DER_WINDOWS


class Residual(nn.Module):
    """A residual block: adds the result of two convolutions to the images."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first = Convolution(channels, channels, IMPALA_SIDE, padding=1)
        self.second = Convolution(channels, channels, IMPALA_SIDE, padding=1)

    def forward(self, images: Tensor) -> Tensor:
        residual: Tensor = self.second(torch.relu_(self.first(torch.relu(images))))
        return residual.add_(images)


class ImpalaSection(nn.Module):
    """A convolution, max pooling that halves height and width, and residual blocks."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.convolution = Convolution(inputs, outputs, IMPALA_SIDE, padding=1)
        self.blocks = nn.ModuleList(Residual(outputs) for _ in range(IMPALA_BLOCKS))

    def forward(self, images: Tensor, scale: Tensor | float | None = None) -> Tensor:
        images = max_pool(self.convolution(images, scale))
        for block in self.blocks:
            images = block(images)
        return images


class ImpalaResNet(Scaled):
    """15 convolutions, from pixels (as integers or floats) to rows."""

    def __init__(
        self, shape: tuple[int, int, int], rng: np.random.Generator, scaling: Scaling = BYTES
    ) -> None:
        super().__init__(scaling, 1, 1)
        channels, height, width = shape
        counts = [channels, *IMPALA_SECTIONS]
        self.sections = nn.ModuleList(
            ImpalaSection(inputs, outputs) for inputs, outputs in pairwise(counts)
        )
        self.size = counts[-1] * impala_side(height) * impala_side(width)
        for layer in _convolutions_of(self):  # truncated: Sonnet's default in the paper's code
            fill_truncated_normal(layer.weight.detach().numpy(), layer.fan_in**-0.5, rng)
            nn.init.zeros_(layer.bias)

    def forward(self, images: Tensor) -> Tensor:
        """[B, C, H, W] -> [B, size]"""
        first, *others = self.sections
        assert isinstance(first, ImpalaSection)
        weight = first.convolution.weight
        images = _prepare_images(images, weight.dtype, self.low, torch.channels_last)
        images = first(images, self.factor)
        for section in others:
            images = section(images)
        return torch.relu_(images).flatten(1)


def max_pool(images: Tensor) -> Tensor:
    """Max-pools windows of 3x3 pixels with stride 2.  [B, C, H, W] -> [B, C, ⌈H/2⌉, ⌈W/2⌉]

    Padding follows TensorFlow's "same", which the paper's code uses: an odd side is padded by a
    pixel before and after, an even one only after.
    """
    before = (images.shape[2] % 2, images.shape[3] % 2)
    return F.max_pool2d(images, kernel_size=3, stride=2, padding=before, ceil_mode=True)


def _prepare_images(
    images: Tensor, dtype: torch.dtype, low: Tensor | float | None, layout: torch.memory_format
) -> Tensor:
    """Returns images minus `low`, on the CPU in this memory layout: with channels last, gradients
    take three quarters of the time for NatureCnn and a half to two thirds for ImpalaResNet."""
    if images.device.type == "cpu":
        images = images.to(dtype, memory_format=layout)
    else:
        images = images.to(dtype)
    return images if low is None else images - low


def _convolutions_of(network: nn.Module) -> list[Convolution]:
    return [module for module in network.modules() if isinstance(module, Convolution)]


IMAGE_NETWORKS: dict[str, type[PlainCnn | ImpalaResNet]] = {
    "minatar_cnn": MinatarCnn,
    "nature_cnn": NatureCnn,
    "der_cnn": DerCnn,
    "impala_resnet": ImpalaResNet,
}


class ImageTorso(Torso):
    """Encodes each image by its own network, and concatenates the other parts of an observation."""

    def __init__(self, architecture: Architecture, rng: np.random.Generator) -> None:
        networks = [
            IMAGE_NETWORKS[image.network](image.shape, rng, image.scaling)
            for image in architecture.images.values()
        ]
        super().__init__(architecture.row_size + sum(part.size for part in networks))
        for network in networks:
            if isinstance(network, NatureCnn):  # small images would be no faster
                network.rounds = rounds_convolutions(architecture)
        # A list, because nn.ModuleDict rejects keys such as "values" or "a.b".
        self.images = nn.ModuleList(networks)
        self._keys = tuple(architecture.images)
        self._rows = architecture.rows is not None

    def forward(self, features: FeatureTensors) -> Tensor:
        if self._keys == ("",):
            assert isinstance(features, Tensor)
            result: Tensor = self.images[0](features)
            return result
        assert isinstance(features, dict)
        parts = [features[""]] if self._rows else []
        parts += [
            network(features[key]) for key, network in zip(self._keys, self.images, strict=True)
        ]
        return torch.cat(parts, dim=1)
