"""Random shifts of sampled images.

Kostrikov, Yarats and Fergus 2021, "Image augmentation is all you need: regularizing deep
reinforcement learning from pixels" (DrQ), with one shift of each observation and next observation
(K = M = 1): four pixels are added on every side that repeat the edge, and an area of the old size
is cut out.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from border_cli.nn.tensor_batch import TensorBatch

PADDING = 4  # pixels


def shifted_batch(
    batch: TensorBatch, images: Iterable[str], generator: torch.Generator
) -> TensorBatch:
    """Both observations of every transition shifted, each on its own; these `images` of them.

    Of several images in one observation all have the same shift.
    """
    offsets = torch.randint(2 * PADDING + 1, (2, len(batch.reward), 2), generator=generator)
    keys = list(images)
    obs, next_obs = (
        {key: shifted(part, by) for key, part in _parts(each).items() if key in keys}
        for each, by in zip((batch.obs, batch.next_obs), offsets, strict=True)
    )
    if isinstance(batch.obs, Tensor):
        return batch._replace(obs=obs[""], next_obs=next_obs[""])
    assert isinstance(batch.next_obs, dict)
    return batch._replace(obs={**batch.obs, **obs}, next_obs={**batch.next_obs, **next_obs})


def _parts(obs: Tensor | dict[str, Tensor]) -> dict[str, Tensor]:
    return obs if isinstance(obs, dict) else {"": obs}


def shifted(images: Tensor, offsets: Tensor, padding: int = PADDING) -> Tensor:
    """Areas of the padded images that begin at these rows and columns.

    [B, C, H, W], [B, 2] int64 between 0 and 2 * padding -> [B, C, H, W]
    """
    padded = _padded(images, padding)
    height, width = images.shape[2:]
    cut = torch.empty_like(images, memory_format=torch.contiguous_format)
    for i, (row, column) in enumerate(offsets.tolist()):
        cut[i] = padded[i, :, row : row + height, column : column + width]
    return cut


def _padded(images: Tensor, padding: int) -> Tensor:
    """[B, C, H, W] -> [B, C, H + 2 padding, W + 2 padding], edges repeated; also of bytes."""
    height, width = images.shape[2:]
    padded = images.new_empty((*images.shape[:2], height + 2 * padding, width + 2 * padding))
    inner = padded[:, :, padding : padding + height]
    inner[..., padding : padding + width] = images
    inner[..., :padding] = images[..., :1]
    inner[..., padding + width :] = images[..., -1:]
    padded[:, :, :padding] = inner[:, :, :1]
    padded[:, :, padding + height :] = inner[:, :, -1:]
    return padded
