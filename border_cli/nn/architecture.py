"""How the networks of an agent look: chosen from the observation space, overridden by settings.

Which observations are images, which convolutions they go through, and the constants that torch and
numpy share. Never imports torch: actors build the same networks in numpy.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any, NamedTuple

import numpy as np

from border_cli.core.spaces import BoxSpace, DictSpace, LeafSpace, Space
from border_cli.errors import ConfigError
from border_cli.nn.encoding import Scaling, encoded_size, is_real, scaling_between
from border_cli.settings.networks import Activation, Matmul, MatmulPrecision

LAYER_NORM_EPSILON = 1e-5  # of a variance; torch's own

# Of a Gaussian that tanh squashes, its deviations those of the state. Haarnoja et al. 2018, "Soft
# actor-critic algorithms and applications": of the paper's code.
SQUASHED_LOG_STD_MIN, SQUASHED_LOG_STD_MAX = -20.0, 2.0

# Of a Gaussian that is cut at the bounds, its deviations the same in every state: of IQL's authors.
# Those of AWAC have -6 and 0.
CUT_LOG_STD_MIN, CUT_LOG_STD_MAX = -5.0, 2.0

SMALLEST = 6  # pixels to a side: of fewer, a window of 3 sees most at once
NATURE_SMALLEST = 36  # pixels to a side: below it the Nature network has nothing left
DER_SMALLEST = 25  # pixels to a side, likewise

# Pixels to a side of the least image that each takes.
CONVOLUTIONS = {
    "minatar_cnn": SMALLEST,
    "nature_cnn": NATURE_SMALLEST,
    "der_cnn": DER_SMALLEST,
    "impala_resnet": SMALLEST,
}


class ConvolutionWindow(NamedTuple):
    """A square convolution without padding."""

    outputs: int  # channels
    side: int  # pixels
    stride: int  # pixels


# Mnih et al. 2015, Methods, "Model architecture"
NATURE_WINDOWS = (
    ConvolutionWindow(32, 8, 4),
    ConvolutionWindow(64, 4, 2),
    ConvolutionWindow(64, 3, 1),
)

# Young and Tian 2019, "MinAtar: an Atari-inspired testbed for thorough and reproducible
# reinforcement learning experiments": the network of its DQN
MINATAR_WINDOWS = (ConvolutionWindow(16, 3, 1),)

# van Hasselt, Hessel and Aslanides 2019, "When to use parametric models in reinforcement learning?"
DER_WINDOWS = (ConvolutionWindow(32, 5, 5), ConvolutionWindow(64, 5, 5))

WINDOWS = {
    "minatar_cnn": MINATAR_WINDOWS,
    "nature_cnn": NATURE_WINDOWS,
    "der_cnn": DER_WINDOWS,
}

# Espeholt et al. 2018, Figure 3, right
IMPALA_SECTIONS = (16, 32, 32)  # channels
IMPALA_BLOCKS = 2  # to a section


@dataclass(frozen=True, slots=True)
class Image:
    """A part of an observation that goes through convolutions."""

    shape: tuple[int, int, int]  # channels, height, width
    axes: tuple[int, ...]  # of the observation, in the order [(stack,) C, H, W]
    scaling: Scaling  # of its pixels
    network: str  # one of CONVOLUTIONS

    @property
    def batch_axes(self) -> tuple[int, ...]:
        """The axes behind that of the batch."""
        return 0, *(axis + 1 for axis in self.axes)


@dataclass(frozen=True, slots=True)
class Architecture:
    """The form of a network up to what it puts out; the same for all networks of an agent."""

    observation: Space
    kind: str = "auto"  # as agent.network names it
    hidden: tuple[int, ...] = (256, 256)
    activation: Activation = Activation.relu
    layer_norm: bool = False
    target: str | None = None  # "module:Class" of a user's network, which takes all there is
    kwargs: Mapping[str, Any] = field(default_factory=dict)  # its arguments after the space
    matmul: Matmul = Matmul.auto  # as agent.matmul names it
    matmul_precision: MatmulPrecision = MatmulPrecision.highest  # … agent.matmul_precision

    def __post_init__(self) -> None:
        if self.kind in CONVOLUTIONS and not self.images:
            side, parts = CONVOLUTIONS[self.kind], _parts(self.observation).values()
            fit = [each for each in CONVOLUTIONS if any(_image(part, each) for part in parts)]
            raise ConfigError(
                f"agent.network={self.kind} needs an image in the observation (uint8 or bool, at "
                f"least {side} x {side}; allowed here: {', '.join(['auto', 'mlp', *fit])})"
            )

    @property
    def images(self) -> dict[str, Image]:
        """The parts that go through convolutions, by their key; "" is an observation by itself."""
        if self.kind == "mlp" or self.target is not None:
            return {}
        found = {key: _image(part, self.kind) for key, part in _parts(self.observation).items()}
        return {key: image for key, image in found.items() if image is not None}

    @property
    def has_encoder(self) -> bool:
        """Whether more than dense layers stands between observations and outputs."""
        return bool(self.images) or self.target is not None

    @property
    def acts_in_torch(self) -> bool:
        """Whether actors compute what stands before dense layers in torch, and not in numpy.

        So they do what exists in torch alone: a user's network, and the ResNet, which takes no
        less time in numpy. The plain convolutions take three fifths of torch's with one image.
        """
        plain = all(each.network in WINDOWS for each in self.images.values())
        return self.target is not None or not plain

    @property
    def rows(self) -> Space | None:
        """The rest of the observation, which becomes rows of numbers; None where all is images.

        Of what a user's network takes: the real numbers, which may be normalised.
        """
        if not self.has_encoder:
            return self.observation
        images, parts = self.images, _parts(self.observation)
        if self.target is not None:
            parts = {key: part for key, part in parts.items() if is_real(part)}
        rest = {key: part for key, part in parts.items() if key not in images}
        if not isinstance(self.observation, DictSpace):
            return rest.get("")
        return DictSpace(rest) if rest else None

    @property
    def row_size(self) -> int:
        """Numbers per row."""
        return 0 if self.rows is None else encoded_size(self.rows)


def _parts(space: Space) -> dict[str, LeafSpace]:
    return space.spaces if isinstance(space, DictSpace) else {"": space}


def _image(space: LeafSpace, kind: str) -> Image | None:
    """The space as the image that a network of this kind takes; None where it is none for it."""
    if not isinstance(space, BoxSpace):
        return None
    shape = image_shape(space)
    if shape is None:
        return None
    side = min(shape[1:])
    if kind == "auto":
        kind = "minatar_cnn" if side < NATURE_SMALLEST else "nature_cnn"
    if side < CONVOLUTIONS[kind]:
        return None
    return Image(shape, image_axes(space.shape), pixel_scaling(space), kind)


def image_shape(space: BoxSpace) -> tuple[int, int, int] | None:
    """(channels, height, width) of uint8 or bool pixels; None of what is no image.

    Two axes are one channel. Of three, see `image_axes`. Four are a stack of such images, whose
    channels lie one behind the other.
    """
    if len(space.shape) not in (2, 3, 4) or space.dtype not in ("uint8", "bool"):
        return None
    *channels, height, width = (space.shape[axis] for axis in image_axes(space.shape))
    if min(height, width) < SMALLEST or not prod(channels):
        return None
    return prod(channels), height, width


def image_axes(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The axes of an image with the channels before height and width.

    Of three, two neighbours alike are the sides of a square, whose third axis holds the channels,
    of a cube the last. Else it is the smaller of first and last, the last of two alike. The first
    of four is that of a stack.
    """
    if len(shape) == 4:
        return 0, *(axis + 1 for axis in image_axes(shape[1:]))
    if len(shape) == 2:
        return 0, 1
    first, middle, last = shape
    square = (first == middle) != (middle == last)
    channels_first = middle == last if square else first < last
    return (0, 1, 2) if channels_first else (2, 0, 1)


def pixel_scaling(space: BoxSpace) -> Scaling:
    """The scaling of pixels to 0 … 1, of each channel by its widest bounds."""
    axes = image_axes(space.shape)
    height, width = (space.shape[axis] for axis in axes[-2:])
    low, high = (
        np.broadcast_to(each, space.shape).transpose(axes).reshape(-1, height * width)
        for each in (space.low, space.high)
    )
    return scaling_between(low.min(1), high.max(1))


def size_after(windows: tuple[ConvolutionWindow, ...], shape: tuple[int, int, int]) -> int:
    """How many numbers convolutions make of (channels, height, width)."""
    _, *sides = shape
    for window in windows:
        sides = [(pixels - window.side) // window.stride + 1 for pixels in sides]
    return windows[-1].outputs * sides[0] * sides[1]


def impala_side(pixels: int) -> int:
    """Pixels to a side after the ResNet; each section halves them, rounded up."""
    for _ in IMPALA_SECTIONS:
        pixels = (pixels + 1) // 2
    return pixels
