"""Convolutional networks for images, in torch. `numpy_images.py` computes the same for acting.

MinatarCnn: Young and Tian 2019, "MinAtar: an Atari-inspired testbed for thorough and reproducible
reinforcement learning experiments".
NatureCnn: Mnih et al. 2015, "Human-level control through deep reinforcement learning".
DerCnn: van Hasselt, Hessel and Aslanides 2019, "When to use parametric models in reinforcement
learning?", data-efficient Rainbow.
ImpalaResNet: Espeholt et al. 2018, "IMPALA: scalable distributed deep-RL with importance weighted
actor-learner architectures", Figure 3, right, without the LSTM.

None has the dense layer that follows in its paper: that is the first of the agent's `hidden`.
"""

from __future__ import annotations

from itertools import pairwise
from typing import ClassVar

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
from border_cli.nn.matmul import rounds_convolutions

IMPALA_SIDE = 3  # pixels of every window


class Convolution(nn.Module):
    """`nn.Conv2d` of a square window, uninitialised: the network that makes it fills it."""

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
        """Numbers that each sum is made of."""
        return self.weight[0].numel()

    def forward(self, images: Tensor, scale: Tensor | float | None = None) -> Tensor:
        """[B, inputs, H, W] -> [B, outputs, H', W'], of `scale` times the images."""
        # The detour over rows changes nothing here. But the gradient of images that lie channels
        # last does so too, and the fused kernel of Adam takes it, in silence, for one that lies as
        # the weights do; through rows it comes back that way.
        weight = self.weight.flatten(1).view(self.weight.shape)
        if scale is not None:
            weight = weight * scale  # there are fewer weights than pixels
        weight, bias = weight.to(images.dtype), self.bias.to(images.dtype)
        return F.conv2d(images, weight, bias, self._stride, self._padding)


class PlainCnn(Scaled):
    """Convolutions with ReLU: pixels, or the same as real numbers, to rows."""

    windows: ClassVar[tuple[ConvolutionWindow, ...]]
    layout: ClassVar[torch.memory_format] = torch.channels_last
    rounds: bool = False  # bfloat16 operands, on a CPU: see `matmul.rounds_convolutions`

    def __init__(
        self, shape: tuple[int, int, int], generator: torch.Generator, scaling: Scaling = BYTES
    ) -> None:
        super().__init__(scaling, 1, 1)
        counts = [shape[0], *(each.outputs for each in self.windows)]
        self.convolutions = nn.ModuleList(
            Convolution(inputs, outputs, window.side, stride=window.stride)
            for (inputs, outputs), window in zip(pairwise(counts), self.windows, strict=True)
        )
        self.size = size_after(self.windows, shape)
        for each in _convolutions(self):  # U(-k, k), as the paper's code has it from Torch 7
            bound = each.fan_in**-0.5
            nn.init.uniform_(each.weight, -bound, bound, generator=generator)
            nn.init.uniform_(each.bias, -bound, bound, generator=generator)

    def forward(self, images: Tensor) -> Tensor:
        """[B, C, H, W] -> [B, size]"""
        first, *others = self.convolutions
        assert isinstance(first, Convolution)  # a ModuleList does not say
        # In place: the sums before a ReLU are not needed again.
        dtype, layout = first.weight.dtype, self.layout
        if self.rounds and dtype is torch.float32 and images.device.type == "cpu":
            # Channels first takes 0.6 of the time of channels last here.
            dtype, layout = torch.bfloat16, torch.contiguous_format
        images = _laid_out(images, dtype, self.low, layout)
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
    """Two convolutions of windows that do not overlap."""

    windows = DER_WINDOWS


class Residual(nn.Module):
    """The images plus a correction to them, which two convolutions compute."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first = Convolution(channels, channels, IMPALA_SIDE, padding=1)
        self.second = Convolution(channels, channels, IMPALA_SIDE, padding=1)

    def forward(self, images: Tensor) -> Tensor:
        correction: Tensor = self.second(torch.relu_(self.first(torch.relu(images))))
        return correction.add_(images)


class ImpalaSection(nn.Module):
    """A convolution, a pooling that halves height and width, and residual blocks."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.convolution = Convolution(inputs, outputs, IMPALA_SIDE, padding=1)
        self.blocks = nn.ModuleList(Residual(outputs) for _ in range(IMPALA_BLOCKS))

    def forward(self, images: Tensor, scale: Tensor | float | None = None) -> Tensor:
        images = pooled(self.convolution(images, scale))
        for block in self.blocks:
            images = block(images)
        return images


class ImpalaResNet(Scaled):
    """15 convolutions: pixels, or the same as real numbers, to rows."""

    def __init__(
        self, shape: tuple[int, int, int], generator: torch.Generator, scaling: Scaling = BYTES
    ) -> None:
        super().__init__(scaling, 1, 1)
        channels, height, width = shape
        counts = [channels, *IMPALA_SECTIONS]
        self.sections = nn.ModuleList(
            ImpalaSection(inputs, outputs) for inputs, outputs in pairwise(counts)
        )
        self.size = counts[-1] * impala_side(height) * impala_side(width)
        for each in _convolutions(self):  # cut off, as the paper's code has it from Sonnet
            std = each.fan_in**-0.5
            nn.init.trunc_normal_(each.weight, 0, std, -2 * std, 2 * std, generator=generator)
            nn.init.zeros_(each.bias)

    def forward(self, images: Tensor) -> Tensor:
        """[B, C, H, W] -> [B, size]"""
        first, *others = self.sections
        assert isinstance(first, ImpalaSection)
        weight = first.convolution.weight
        images = _laid_out(images, weight.dtype, self.low, torch.channels_last)
        images = first(images, self.factor)
        for section in others:
            images = section(images)
        return torch.relu_(images).flatten(1)


def pooled(images: Tensor) -> Tensor:
    """The greatest of 3x3 pixels at every second one.  [B, C, H, W] -> [B, C, ⌈H/2⌉, ⌈W/2⌉]

    Edges as TensorFlow's "same" treats them, which the paper's code uses: an odd side gets a pixel
    before and after it, an even one after it only.
    """
    before = (images.shape[2] % 2, images.shape[3] % 2)
    return F.max_pool2d(images, kernel_size=3, stride=2, padding=before, ceil_mode=True)


def _laid_out(
    images: Tensor, dtype: torch.dtype, low: Tensor | float | None, layout: torch.memory_format
) -> Tensor:
    """Real numbers above `low`, on the CPU as `layout` says: channels last gradients take three
    quarters of the time for NatureCnn and two thirds to a half for ImpalaResNet."""
    if images.device.type == "cpu":
        images = images.to(dtype, memory_format=layout)
    else:
        images = images.to(dtype)
    return images if low is None else images - low


def _convolutions(network: nn.Module) -> list[Convolution]:
    return [each for each in network.modules() if isinstance(each, Convolution)]


IMAGE_NETWORKS: dict[str, type[PlainCnn | ImpalaResNet]] = {
    "minatar_cnn": MinatarCnn,
    "nature_cnn": NatureCnn,
    "der_cnn": DerCnn,
    "impala_resnet": ImpalaResNet,
}


class ImageTorso(Torso):
    """Each image through a network of its own, and other parts of an observation beside them."""

    def __init__(self, architecture: Architecture, generator: torch.Generator) -> None:
        networks = [
            IMAGE_NETWORKS[each.network](each.shape, generator, each.scaling)
            for each in architecture.images.values()
        ]
        super().__init__(architecture.row_size + sum(each.size for each in networks))
        for network in networks:
            if isinstance(network, NatureCnn):  # small images gain nothing
                network.rounds = rounds_convolutions(architecture)
        # A list, because an nn.ModuleDict refuses keys such as "values" or "a.b".
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
