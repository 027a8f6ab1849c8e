"""Examples of user networks for `agent.network`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from border_cli.registry import NETWORKS


class Tanh(nn.Module):
    """An MLP with two tanh layers for vector observations."""

    def __init__(self, space: Any, width: int = 8) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(space.shape[0], width), nn.Tanh())
        self.last = nn.Linear(width, width + 1)

    def forward(self, obs: Tensor) -> Tensor:
        return torch.tanh(self.last(self.layers(obs)))


class Everything(nn.Module):
    """An encoder of dict observations: a screen [H, W, C], a speed and a gear."""

    def __init__(self, space: Any) -> None:
        super().__init__()
        parts = space.spaces
        self.screen = nn.Conv2d(parts["screen"].shape[2], 4, 3, stride=3)
        self.norm = nn.BatchNorm2d(4)
        self.speed = nn.Linear(parts["speed"].shape[0], 5)
        self.gear = nn.Embedding(parts["gear"].n, 3)
        self.scale = nn.Parameter(torch.tensor(1 / 255), requires_grad=False)

    def forward(self, obs: dict[str, Tensor]) -> Tensor:
        screen = obs["screen"].permute(0, 3, 1, 2) * self.scale
        screen = torch.relu(self.norm(self.screen(screen))).flatten(1)
        return torch.cat((screen, self.speed(obs["speed"]), self.gear(obs["gear"])), dim=1)


@contextmanager
def registered(**networks: type[nn.Module] | str) -> Iterator[None]:
    """Registers networks for `agent.network` within the block."""
    before = dict(NETWORKS._targets)
    for name, network in networks.items():
        NETWORKS.register(name, network)
    yield
    NETWORKS._targets = before
