"""Which observations are images, and the convolutions that torch and numpy both make of them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from border_cli.core.spaces import BoxSpace
from border_cli.nn.numpy_encoder import BYTES, Scaling, scaling_between

SMALLEST = 6  # pixels to a side: of fewer, a window of 3 sees most at once
NATURE_SMALLEST = 36  # pixels to a side: below it the Nature network has nothing left


class Window(NamedTuple):
    """A square convolution without padding."""

    outputs: int  # channels
    side: int  # pixels
    stride: int  # pixels


# Mnih et al. 2015, Methods, "Model architecture"
NATURE_WINDOWS = (Window(32, 8, 4), Window(64, 4, 2), Window(64, 3, 1))

# Young and Tian 2019, "MinAtar: an Atari-inspired testbed for thorough and reproducible
# reinforcement learning experiments": the network of its DQN
MINATAR_WINDOWS = (Window(16, 3, 1),)

# Espeholt et al. 2018, Figure 3, right
IMPALA_SECTIONS = (16, 32, 32)  # channels
IMPALA_BLOCKS = 2  # to a section


def image_shape(space: BoxSpace) -> tuple[int, int, int] | None:
    """(channels, height, width) of uint8 or bool pixels; None of what is no image.

    Two axes are one channel. Of three, see `channels_first`.
    """
    match space.shape:
        case (height, width):
            channels = 1
        case (channels, height, width) if channels_first(space):
            pass
        case (height, width, channels):
            pass
        case _:
            return None
    smallest = SMALLEST if space.by_bounds else NATURE_SMALLEST
    pixels = ("uint8", "bool") if space.by_bounds else ("uint8",)
    if space.dtype not in pixels or min(height, width) < smallest or not channels:
        return None
    return channels, height, width


def channels_first(space: BoxSpace) -> bool:
    """Whether the first of three axes holds the channels; else the last does, or there are two.

    Two neighbours alike are the sides of a square, whose third axis holds the channels, of a cube
    the last. Else it is the smaller of first and last, the last of two alike.
    """
    if len(space.shape) != 3:
        return False
    first, middle, last = space.shape
    if not space.by_bounds:
        return first <= last
    if (first == middle) != (middle == last):
        return middle == last
    return first < last


def pixel_scaling(space: BoxSpace) -> Scaling:
    """What makes 0 to 1 of the pixels of an image: of each channel by its widest bounds."""
    if not space.by_bounds:
        return BYTES
    low, high = (np.broadcast_to(each, space.shape) for each in (space.low, space.high))
    if len(space.shape) == 2:
        low, high = low[None], high[None]
    elif not channels_first(space):
        low, high = np.moveaxis(low, 2, 0), np.moveaxis(high, 2, 0)
    return scaling_between(low.min((1, 2)), high.max((1, 2)))


def size_after(windows: tuple[Window, ...], shape: tuple[int, int, int]) -> int:
    """How many numbers convolutions make of (channels, height, width)."""
    _, *sides = shape
    for window in windows:
        sides = [(pixels - window.side) // window.stride + 1 for pixels in sides]
    return windows[-1].outputs * sides[0] * sides[1]


def impala_side(pixels: int) -> int:
    """What the ResNet leaves of so many pixels to a side; each section halves it, rounded up."""
    for _ in IMPALA_SECTIONS:
        pixels = (pixels + 1) // 2
    return pixels
