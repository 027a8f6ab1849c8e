"""Which observations are images."""

from __future__ import annotations

from border_cli.core.spaces import BoxSpace

SMALLEST = 36  # pixels to a side: below it the Nature network has nothing left


def image_shape(space: BoxSpace) -> tuple[int, int, int] | None:
    """(channels, height, width) of uint8 pixels; None of what is no image.

    The smaller of first and last axis holds the channels; two axes are one channel.
    """
    if space.dtype != "uint8" or len(space.shape) not in (2, 3):
        return None
    if len(space.shape) == 2:
        shape = (1, *space.shape)
    elif space.shape[0] <= space.shape[2]:
        shape = space.shape
    else:
        shape = (space.shape[2], space.shape[0], space.shape[1])
    channels, height, width = shape
    return (channels, height, width) if min(height, width) >= SMALLEST else None
