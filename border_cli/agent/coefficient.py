"""How much a part of a loss counts, fixed or learned."""

from __future__ import annotations

import math
from typing import ClassVar

import torch
from torch import Tensor, nn

from border_cli.nn.optimizer import Adam


class Coefficient(nn.Module):
    """Keeps the logarithm of a number that is not negative; the learner's thread moves it.

    The gradient of a learned one is that of its logarithm times an excess, and not that of the
    number times it, so that a small one is no slower to grow. A checkpoint holds a learned one.
    """

    setting: ClassVar[str]  # that says whether it is learned
    log: Tensor  # []

    def __init__(
        self, first: float, *, learned: bool, learning_rate: float, device: torch.device
    ) -> None:
        super().__init__()
        self.learned = learned
        log = math.log(first) if first > 0 else -math.inf
        self.register_buffer("log", torch.tensor(log), persistent=learned)
        self.to(device)
        self.optimizer = Adam([self.log], learning_rate=learning_rate)

    def forward(self) -> Tensor:
        """Above 0, or 0 where the settings say so. []"""
        return self.log.exp()
