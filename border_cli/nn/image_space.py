"""Which observations are images, and the convolutions that torch and numpy both make of them."""

from __future__ import annotations

from typing import NamedTuple

from border_cli.core.spaces import BoxSpace

SMALLEST = 36  # pixels to a side: below it the Nature network has nothing left


class Window(NamedTuple):
    """A square convolution without padding."""

    outputs: int  # channels
    side: int  # pixels
    stride: int  # pixels


# Mnih et al. 2015, Methods, "Model architecture"
NATURE_WINDOWS = (Window(32, 8, 4), Window(64, 4, 2), Window(64, 3, 1))

# Espeholt et al. 2018, Figure 3, right
IMPALA_SECTIONS = (16, 32, 32)  # channels
IMPALA_BLOCKS = 2  # to a section


def image_shape(space: BoxSpace) -> tuple[int, int, int] | None:
    """(channels, height, width) of uint8 pixels; None of what is no image.

    The smaller of first and last axis holds the channels, the first of two alike; two axes are one
    channel.
    """
    match space.shape:
        case (height, width):
            channels = 1
        case (first, height, width) if first <= width:
            channels = first
        case (height, width, last):
            channels = last
        case _:
            return None
    if space.dtype != "uint8" or min(height, width) < SMALLEST:
        return None
    return channels, height, width


def nature_side(pixels: int) -> int:
    """What the Nature network leaves of so many pixels to a side."""
    for window in NATURE_WINDOWS:
        pixels = (pixels - window.side) // window.stride + 1
    return pixels


def impala_side(pixels: int) -> int:
    """What the ResNet leaves of so many pixels to a side; each section halves it, rounded up."""
    for _ in IMPALA_SECTIONS:
        pixels = (pixels + 1) // 2
    return pixels
