"""Networks of distributions over actions, whose log-density of given actions is learned."""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn

from border_cli.nn.architecture import Architecture
from border_cli.nn.features import FeatureTensors
from border_cli.nn.gaussian import normal_log_density
from border_cli.nn.gaussian_range import CUT_LOG_STD_MAX, CUT_LOG_STD_MIN
from border_cli.nn.network import Network


def gaussian_log_prob(mean: Tensor, log_std: Tensor, action: Tensor) -> Tensor:
    """The log-density of N(mean, std). [B, A], [A], [B, A] -> [B, 1]"""
    standardised = (action - mean) * torch.exp(-log_std)
    return normal_log_density(standardised, log_std).sum(dim=1, keepdim=True)


def gumbel_max(logits: Tensor, uniform: Tensor) -> Tensor:
    """An action of probability softmax(logits), one-hot, by one uniform number for each.

    The highest of logits + Gumbel noise has this distribution. [B, n], [B, n] -> [B, n]
    """
    best = (logits - torch.log(-torch.log(uniform))).argmax(dim=1, keepdim=True)
    return torch.zeros_like(logits).scatter_(1, best, 1.0)


class StochasticNetwork(Network, ABC):
    """From features to what describes a distribution over actions."""

    @abstractmethod
    def log_prob(self, outputs: Tensor, action: Tensor) -> Tensor:
        """Of actions as a batch has them. [B, outputs], [B, A] or [B, 1] -> [B, 1]"""

    @abstractmethod
    def sample(self, outputs: Tensor, noise: Tensor) -> Tensor:
        """Actions as critics take them, one for each row. [B, outputs], [B, A] -> [B, A]"""

    def confine(self) -> None:
        """Called after every step of the optimiser: leaves no parameter out of its range."""


class GaussianNetwork(StochasticNetwork):
    """N(tanh(x), std), cut to -1 … 1: one deviation per action dimension, whatever the state.

    That is how the authors of AWAC and IQL have it, both in code of their own. Without tanh around
    the samples an action of the data at its very bound is as likely as any other. `NumpyNetwork`
    puts out x, and the policy does the rest.
    """

    def __init__(
        self,
        architecture: Architecture,
        outputs: int,
        generator: torch.Generator,
        *,
        final_bound: float | None = None,
    ) -> None:
        super().__init__(architecture, outputs, generator, final_bound=final_bound)
        self.log_std = nn.Parameter(torch.zeros(outputs))  # [A]

    def forward(self, features: FeatureTensors) -> Tensor:
        return torch.tanh(super().forward(features))  # [B, A]

    def log_prob(self, outputs: Tensor, action: Tensor) -> Tensor:
        return gaussian_log_prob(outputs, self.log_std, action)

    def sample(self, outputs: Tensor, noise: Tensor) -> Tensor:
        return torch.addcmul(outputs, self.log_std.exp(), noise).clamp(-1, 1)

    def confine(self) -> None:
        # Clamped here and not where it is used: beyond a clamp there is no gradient to come back.
        self.log_std.detach().clamp_(CUT_LOG_STD_MIN, CUT_LOG_STD_MAX)


class CategoricalNetwork(StochasticNetwork):
    """The logits of every action of a Discrete space."""

    def log_prob(self, outputs: Tensor, action: Tensor) -> Tensor:
        return torch.log_softmax(outputs, dim=1).gather(1, action)

    def sample(self, outputs: Tensor, noise: Tensor) -> Tensor:
        return gumbel_max(outputs, noise)
