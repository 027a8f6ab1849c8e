"""The architecture of an agent's networks, derived from the observation space and the settings.

It determines which observations are images and which convolutions encode them. It also has
constants shared by torch and numpy, and does not import torch: actors build the same networks in
numpy.
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

LAYER_NORM_EPSILON = 1e-5  # added to the variance; torch's default

# Bounds of the state-dependent log_std of a tanh-squashed Gaussian, from the code of Haarnoja et
# al. 2018, "Soft actor-critic algorithms and applications".
SQUASHED_LOG_STD_MIN, SQUASHED_LOG_STD_MAX = -20.0, 2.0

# Bounds of the state-independent log_std of a Gaussian clipped to the action bounds, from the code
# of IQL's authors. AWAC's authors use -6 and 0.
CUT_LOG_STD_MIN, CUT_LOG_STD_MAX = -5.0, 2.0

SMALLEST = 6  # pixels per side: a window of 3 covers most of a smaller image
NATURE_SMALLEST = 36  # pixels per side: smaller images are reduced to nothing
DER_SMALLEST = 25  # pixels per side, for the same reason

# The smallest side of an image, in pixels, that each network accepts.
CONVOLUTIONS = {
    "minatar_cnn": SMALLEST,
    "nature_cnn": NATURE_SMALLEST,
    "der_cnn": DER_SMALLEST,
    "impala_resnet": SMALLEST,
}


class ConvolutionWindow(NamedTuple):
    """The size of a square convolution without padding."""

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
IMPALA_BLOCKS = 2  # residual blocks per section


@dataclass(frozen=True, slots=True)
class Image:
    """An image in an observation, which is encoded by convolutions."""

    shape: tuple[int, int, int]  # channels, height, width
    axes: tuple[int, ...]  # axes of the observation, in the order [(stack,) C, H, W]
    scaling: Scaling  # scaling of the pixels
    network: str  # one of CONVOLUTIONS

    @property
    def batch_axes(self) -> tuple[int, ...]:
        """The same axes for a batch of observations, after the batch axis."""
        return 0, *(axis + 1 for axis in self.axes)


@dataclass(frozen=True, slots=True)
class Architecture:
    """The architecture of an agent's networks up to their outputs; critics may have other sizes."""

    observation: Space
    kind: str = "auto"  # value of agent.network
    hidden: tuple[int, ...] = (256, 256)
    activation: Activation = Activation.relu
    layer_norm: bool = False
    target: str | None = None  # "module:Class" of a user's network, which encodes everything
    kwargs: Mapping[str, Any] = field(default_factory=dict)  # keyword arguments of that network
    matmul: Matmul = Matmul.auto  # value of agent.matmul
    matmul_precision: MatmulPrecision = MatmulPrecision.highest  # value of agent.matmul_precision
    # The images of an observation by key; "" means that the observation is a single array.
    images: Mapping[str, Image] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        # found once, because the bounds of a large image take long to scan
        object.__setattr__(self, "images", self._find_images())
        if not self.has_encoder and not self.row_size:
            raise ConfigError("the observation is empty, so that there is nothing to learn from")
        if self.kind in CONVOLUTIONS and not self.images:
            side, parts = CONVOLUTIONS[self.kind], _split(self.observation).values()
            fit = [kind for kind in CONVOLUTIONS if any(_to_image(part, kind) for part in parts)]
            raise ConfigError(
                f"agent.network={self.kind} needs an image in the observation (uint8 or bool, at "
                f"least {side} x {side}; allowed here: {', '.join(['auto', 'mlp', *fit])})"
            )

    def _find_images(self) -> dict[str, Image]:
        if self.kind == "mlp" or self.target is not None:
            return {}
        images = {key: _to_image(part, self.kind) for key, part in _split(self.observation).items()}
        return {key: image for key, image in images.items() if image is not None}

    @property
    def has_encoder(self) -> bool:
        """True if an encoder precedes the dense layers."""
        return bool(self.images) or self.target is not None

    @property
    def acts_in_torch(self) -> bool:
        """True if actors run the encoder in torch instead of numpy.

        A user's network exists in torch only, and the ResNet is no faster in numpy. For a single
        image, plain convolutions take three fifths of torch's time in numpy.
        """
        plain = all(image.network in WINDOWS for image in self.images.values())
        return self.target is not None or not plain

    @property
    def rows(self) -> Space | None:
        """The rest of the observation, which is encoded as rows of numbers; None if there is none.

        With a user's network, the rows are the real numbers, which may be normalised.
        """
        if not self.has_encoder:
            return self.observation
        images, parts = self.images, _split(self.observation)
        if self.target is not None:
            parts = {key: part for key, part in parts.items() if is_real(part)}
        rest = {key: part for key, part in parts.items() if key not in images}
        if not isinstance(self.observation, DictSpace):
            return rest.get("")
        return DictSpace(rest) if rest else None

    @property
    def row_size(self) -> int:
        """Number of values per row."""
        return 0 if self.rows is None else encoded_size(self.rows)


def _split(space: Space) -> dict[str, LeafSpace]:
    return space.spaces if isinstance(space, DictSpace) else {"": space}


def _to_image(space: LeafSpace, kind: str) -> Image | None:
    """Returns the space as an image for a network of this kind, or None if it is not suitable."""
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
    """Returns (channels, height, width) of uint8 or bool pixels, or None if this is not an image.

    Two axes are a single channel. For three axes, see `image_axes`. Four axes are a stack of
    images, whose channels are concatenated.
    """
    if len(space.shape) not in (2, 3, 4) or space.dtype not in ("uint8", "bool"):
        return None
    *channels, height, width = (space.shape[axis] for axis in image_axes(space.shape))
    if min(height, width) < SMALLEST or not prod(channels):
        return None
    return prod(channels), height, width


def image_axes(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Returns the axes of an image, reordered such that the channels precede height and width.

    If exactly two neighbouring axes of three are equal, they are height and width. Otherwise the
    channels are the smaller of the first and last axis, or the last if both are equal. The first of
    four axes is the stack.
    """
    if len(shape) == 4:
        return 0, *(axis + 1 for axis in image_axes(shape[1:]))
    if len(shape) == 2:
        return 0, 1
    first, middle, last = shape
    has_square = (first == middle) != (middle == last)
    channels_first = middle == last if has_square else first < last
    return (0, 1, 2) if channels_first else (2, 0, 1)


def pixel_scaling(space: BoxSpace) -> Scaling:
    """Returns the scaling of pixels to [0, 1], with the widest bounds of each channel."""
    axes = image_axes(space.shape)
    height, width = (space.shape[axis] for axis in axes[-2:])
    low, high = (
        np.broadcast_to(bound, space.shape).transpose(axes).reshape(-1, height * width)
        for bound in (space.low, space.high)
    )
    return scaling_between(low.min(1), high.max(1))


def size_after(windows: tuple[ConvolutionWindow, ...], shape: tuple[int, int, int]) -> int:
    """Returns the number of outputs of convolutions of (channels, height, width)."""
    _, *sides = shape
    for window in windows:
        sides = [(pixels - window.side) // window.stride + 1 for pixels in sides]
    return windows[-1].outputs * sides[0] * sides[1]


def impala_side(pixels: int) -> int:
    """Returns the pixels per side after the ResNet; each section halves them, rounded up."""
    for _ in IMPALA_SECTIONS:
        pixels = (pixels + 1) // 2
    return pixels
