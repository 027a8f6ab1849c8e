"""Random shifts of image observations.

Kostrikov, Yarats and Fergus 2021, "Image augmentation is all you need: regularizing deep
reinforcement learning from pixels" (DrQ), with one shift per observation and next observation
(K = M = 1): pads each side with four pixels that repeat the edge, then crops at a random offset.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from border_cli.nn.batch import TensorBatch

PADDING = 4  # pixels


def shift_batch(
    batch: TensorBatch, images: Iterable[str], generator: torch.Generator
) -> TensorBatch:
    """Shifts the `images` of obs and next_obs by independent random offsets.

    All images of one observation are shifted by the same offset.
    """
    offsets = torch.randint(2 * PADDING + 1, (2, len(batch.reward), 2), generator=generator)
    keys = list(images)
    obs, next_obs = (
        {
            key: shift_images(part, offset)
            for key, part in _as_dict(observation).items()
            if key in keys
        }
        for observation, offset in zip((batch.obs, batch.next_obs), offsets, strict=True)
    )
    if isinstance(batch.obs, Tensor):
        return batch._replace(obs=obs[""], next_obs=next_obs[""])
    assert isinstance(batch.next_obs, dict)
    return batch._replace(obs={**batch.obs, **obs}, next_obs={**batch.next_obs, **next_obs})


def _as_dict(obs: Tensor | dict[str, Tensor]) -> dict[str, Tensor]:
    return obs if isinstance(obs, dict) else {"": obs}


def shift_images(images: Tensor, offsets: Tensor, padding: int = PADDING) -> Tensor:
    """Pads images and crops each at its offset (row and column) to the original size.

    [B, C, H, W], [B, 2] int64 between 0 and 2 * padding -> [B, C, H, W]
    """
    padded = _pad(images, padding)
    height, width = images.shape[2:]
    crops = torch.empty_like(images, memory_format=torch.contiguous_format)
    for i, (row, column) in enumerate(offsets.tolist()):
        crops[i] = padded[i, :, row : row + height, column : column + width]
    return crops


def _pad(images: Tensor, padding: int) -> Tensor:
    """Repeats the edges of images of any dtype. [B, C, H, W] -> [B, C, H + 2 p, W + 2 p]"""
    height, width = images.shape[2:]
    padded = images.new_empty((*images.shape[:2], height + 2 * padding, width + 2 * padding))
    inner = padded[:, :, padding : padding + height]
    inner[..., padding : padding + width] = images
    inner[..., :padding] = images[..., :1]
    inner[..., padding + width :] = images[..., -1:]
    padded[:, :, :padding] = inner[:, :, :1]
    padded[:, :, padding + height :] = inner[:, :, -1:]
    return padded
