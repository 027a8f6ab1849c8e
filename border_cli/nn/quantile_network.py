"""Implicit quantile networks: from features and fractions to the quantiles of every action.

Dabney, Ostrovski, Silver and Munos 2018, "Implicit quantile networks for distributional
reinforcement learning", equation 4 and the text below it.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from border_cli.nn.architecture import Architecture
from border_cli.nn.dense import Dense, Mlp
from border_cli.nn.features import FeatureTensors
from border_cli.nn.matmul import uses_onednn
from border_cli.nn.network import LearnedModule, torso_of


class QuantileNetwork(LearnedModule):
    """f(psi(s) * phi(tau)); `NumpyQuantileNetwork` is the numpy counterpart.

    The last hidden layer belongs to f and all others to psi, as in the paper with convolutions. A
    single hidden layer without an encoder belongs to psi.
    """

    _waves: Tensor  # [embedding_size]  pi i

    def __init__(
        self,
        architecture: Architecture,
        embedding_size: int,
        num_actions: int,
        rng: np.random.Generator,
    ) -> None:
        super().__init__()
        self.torso = torso_of(architecture, rng)
        hidden = architecture.hidden
        split = len(hidden) - 1 if len(hidden) > 1 or architecture.has_encoder else len(hidden)
        sizes = [self.torso.size, *hidden[: max(split, 0)]]
        onednn = uses_onednn(architecture)
        self.psi = Mlp(architecture, sizes, None, rng)
        self.phi = Dense(embedding_size, sizes[-1], rng, onednn=onednn)
        self.f = Mlp(architecture, [sizes[-1], *hidden[max(split, 0) :]], num_actions, rng)
        waves = math.pi * torch.arange(embedding_size)
        self.register_buffer("_waves", waves, persistent=False)

    def forward(self, features: FeatureTensors, fractions: Tensor) -> Tensor:
        """Returns the quantiles at these fractions, [B, N] or [1, N]. [B, N, num_actions]"""
        return self.quantiles(self.embed(features), fractions)

    def embed(self, features: FeatureTensors) -> Tensor:
        """Returns psi(s). [B, size]"""
        rows: Tensor = self.psi(self.torso(features))
        return rows

    def quantiles(self, rows: Tensor, fractions: Tensor) -> Tensor:
        """psi(s) [B, size], fractions [B, N] or [1, N] -> [B, N, num_actions]"""
        result: Tensor = self.f(self._multiply(rows, fractions))
        return result

    def means(self, rows: Tensor, fractions: Tensor) -> Tensor:
        """Averages over the fractions. psi(s) [B, size], [1, N] -> [B, num_actions]

        The mean is taken before the last layer, which is linear.
        """
        result: Tensor = self.f.layers[-1](self.f.trunk(self._multiply(rows, fractions)).mean(1))
        return result

    def _multiply(self, rows: Tensor, fractions: Tensor) -> Tensor:
        """Returns psi(s) * phi(tau). [B, N, size]"""
        cosines = torch.cos(fractions[:, :, None] * self._waves)  # [B or 1, N, embedding_size]
        return rows[:, None, :] * torch.relu_(self.phi(cosines))
