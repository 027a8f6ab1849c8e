"""A network that extracts features from boards."""

from typing import cast

from border_cli.core.spaces import BoxSpace
from torch import Tensor, nn


class BoardNetwork(nn.Module):
    """A convolution and a dense layer, from boards [B, rows, columns] to features [B, width]."""

    def __init__(self, space: BoxSpace, channels: int = 8, width: int = 64) -> None:
        super().__init__()
        if len(space.shape) != 2:
            raise ValueError(f"observations must be boards [rows, columns], got {space.shape}")
        rows, columns = space.shape
        self.layers = nn.Sequential(
            nn.Conv2d(1, channels, kernel_size=3, padding=1),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(channels * rows * columns, width),
            nn.LayerNorm(width),
            nn.ReLU(),
        )

    def forward(self, boards: Tensor) -> Tensor:
        """[B, rows, columns] -> [B, width]"""
        return cast(Tensor, self.layers(boards.unsqueeze(1)))
