"""How the networks of an agent look: chosen from the observation space, overridden by settings.

Never imports torch: actors build the same networks in numpy.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from border_cli.core.config import Activation, NetworkKind
from border_cli.core.errors import ConfigError
from border_cli.core.spaces import BoxSpace, DictSpace, LeafSpace, Space
from border_cli.nn.image_space import (
    NATURE_SMALLEST,
    SMALLEST,
    channels_first,
    image_shape,
    pixel_scaling,
)
from border_cli.nn.numpy_encoder import Scaling, encoded_size, row_scaling

LAYER_NORM_EPSILON = 1e-5  # of a variance; torch's own


# Pixels to a side of the least image that each takes.
CONVOLUTIONS = {
    NetworkKind.minatar_cnn: SMALLEST,
    NetworkKind.nature_cnn: NATURE_SMALLEST,
    NetworkKind.impala_resnet: SMALLEST,
}


@dataclass(frozen=True, slots=True)
class Image:
    """A part of an observation that goes through convolutions."""

    shape: tuple[int, int, int]  # channels, height, width
    channels_first: bool  # it lies as [C, H, W]; else as [H, W, C] or [H, W]
    scaling: Scaling  # of its pixels
    network: NetworkKind  # one of CONVOLUTIONS


@dataclass(frozen=True, slots=True)
class Architecture:
    """The form of a network up to what it puts out; the same for all networks of an agent."""

    observation: Space
    kind: NetworkKind = NetworkKind.auto
    hidden: tuple[int, ...] = (256, 256)
    activation: Activation = Activation.relu
    layer_norm: bool = False

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
        if self.kind == NetworkKind.mlp:
            return {}
        found = {key: _image(part, self.kind) for key, part in _parts(self.observation).items()}
        return {key: image for key, image in found.items() if image is not None}

    @property
    def rows(self) -> Space | None:
        """The rest of the observation, which becomes rows of numbers; None where all is images."""
        images = self.images
        if not images:
            return self.observation
        rest = {key: part for key, part in _parts(self.observation).items() if key not in images}
        return DictSpace(rest) if rest else None

    @property
    def row_size(self) -> int:
        """Numbers per row."""
        return 0 if self.rows is None else encoded_size(self.rows)


def bounds_matter(observation: Space) -> bool:
    """Whether it makes a difference that networks take its integers by their bounds."""
    return any(
        isinstance(part, BoxSpace) and _form(part, True) != _form(part, False)
        for part in _parts(observation).values()
    )


def _form(box: BoxSpace, by_bounds: bool) -> tuple[object, ...]:
    """How networks take a Box, as values that can be compared."""
    box = replace(box, by_bounds=by_bounds)
    shape, scaling = image_shape(box), [np.asarray(each).tolist() for each in row_scaling(box)]
    return shape, shape and channels_first(box), scaling


def _parts(space: Space) -> dict[str, LeafSpace]:
    return space.spaces if isinstance(space, DictSpace) else {"": space}


def _image(space: LeafSpace, kind: NetworkKind) -> Image | None:
    """The space as the image that a network of this kind takes; None where it is none for it."""
    if not isinstance(space, BoxSpace):
        return None
    shape = image_shape(space)
    if shape is None:
        return None
    side = min(shape[1:])
    if kind == NetworkKind.auto:
        small = side < NATURE_SMALLEST
        kind = NetworkKind.minatar_cnn if small else NetworkKind.nature_cnn
    if side < CONVOLUTIONS[kind]:
        return None
    return Image(shape, channels_first(space), pixel_scaling(space), kind)
