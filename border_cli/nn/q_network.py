"""The network of value-based agents: one number for every action."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from border_cli.core.spaces import Space
from border_cli.nn.encoder import TensorObs, encoder_for
from border_cli.nn.mlp import Mlp
from border_cli.nn.numpy_encoder import encoded_size


class QNetwork(nn.Module):
    """Q(s, ·): an encoder without weights, chosen from the observation space, and dense layers."""

    def __init__(
        self, observation: Space, hidden: Sequence[int], num_actions: int, seed: int
    ) -> None:
        super().__init__()
        self.encoder = encoder_for(observation)
        generator = torch.Generator().manual_seed(seed)
        self.mlp = Mlp([encoded_size(observation), *hidden, num_actions], generator)

    def forward(self, obs: TensorObs) -> Tensor:
        q: Tensor = self.mlp(self.encoder(obs))  # [B, num_actions]
        return q
