"""Distributions over actions, and the networks whose log-density of given actions is learned.

A Gaussian that tanh squashes into -1 … 1: Haarnoja et al. 2018, "Soft actor-critic algorithms and
applications", Appendix C. A network puts out the mean and the logarithm of the deviation of each
action dimension; nothing is exponentiated but here, once.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

import torch
import torch.nn.functional as F  # noqa: N812 - as all of torch's users call it
from torch import Tensor, nn

from border_cli.nn.architecture import (
    CUT_LOG_STD_MAX,
    CUT_LOG_STD_MIN,
    SQUASHED_LOG_STD_MAX,
    SQUASHED_LOG_STD_MIN,
    Architecture,
)
from border_cli.nn.choices import Choices
from border_cli.nn.features import FeatureTensors
from border_cli.nn.network import Network

BOUND = 1 - 1e-6  # an action of a data set at its very bound has an infinite pre-image


def split(outputs: Tensor) -> tuple[Tensor, Tensor]:
    """mean and log_std out of what a network put out. [B, 2 A] -> [B, A], [B, A]"""
    mean, log_std = outputs.chunk(2, dim=1)
    return mean, log_std.clamp(SQUASHED_LOG_STD_MIN, SQUASHED_LOG_STD_MAX)


def sample(mean: Tensor, log_std: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
    """tanh(mean + std noise) and its log-density, both differentiable. [B, A], [B, 1]"""
    before = torch.addcmul(mean, log_std.exp(), noise)  # [B, A]
    density = normal_log_density(noise, log_std) - _log_slope(before)
    return torch.tanh(before), density.sum(dim=1, keepdim=True)


def log_prob(mean: Tensor, log_std: Tensor, action: Tensor) -> Tensor:
    """The log-density of an action between -1 and 1, as of a data set. [B, A] -> [B, 1]"""
    before = torch.atanh(action.clamp(-BOUND, BOUND))  # [B, A]
    standardised = (before - mean) * torch.exp(-log_std)
    density = normal_log_density(standardised, log_std) - _log_slope(before)
    return density.sum(dim=1, keepdim=True)


def normal_log_density(standardised: Tensor, log_std: Tensor) -> Tensor:
    """The log-density of a Gaussian at (x - mean) / std, of each dimension. [B, A]"""
    return -0.5 * standardised.square() - log_std - 0.5 * math.log(2 * math.pi)


def _log_slope(before: Tensor) -> Tensor:
    """log(1 - tanh(x)^2) = 2 (log 2 - x - softplus(-2 x)), exact also where tanh is flat. [B, A]"""
    return 2 * (math.log(2) - before - F.softplus(-2 * before))


def gaussian_log_prob(mean: Tensor, log_std: Tensor, action: Tensor) -> Tensor:
    """The log-density of N(mean, std). [B, A], [A], [B, A] -> [B, 1]"""
    standardised = (action - mean) * torch.exp(-log_std)
    return normal_log_density(standardised, log_std).sum(dim=1, keepdim=True)


class StochasticNetwork(Network, ABC):
    """From features to what describes a distribution over actions."""

    @abstractmethod
    def log_prob(self, outputs: Tensor, action: Tensor) -> Tensor:
        """Of actions as a batch has them. [B, outputs], [B, A] or [B, K] -> [B, 1]"""

    @abstractmethod
    def sample(self, outputs: Tensor, noise: Tensor) -> Tensor:
        """Actions as critics take them, one for each row. [B, outputs], [B, A] -> [B, A]"""

    def clamp_parameters(self) -> None:
        """Called after every step of the optimizer: leaves no parameter out of its range."""


class GaussianNetwork(StochasticNetwork):
    """N(tanh(x), std), cut to -1 … 1: one deviation per action dimension, whatever the state.

    That is how the authors of AWAC and IQL have it, both in code of their own. Without tanh around
    the samples an action of the data at its very bound is as likely as any other. `NumpyNetwork`
    puts out x, and the policy does the rest.
    """

    def __init__(
        self, architecture: Architecture, outputs: int, generator: torch.Generator
    ) -> None:
        super().__init__(architecture, outputs, generator)
        self.log_std = nn.Parameter(torch.zeros(outputs))  # [A]

    def forward(self, features: FeatureTensors) -> Tensor:
        return torch.tanh(super().forward(features))  # [B, A]

    def log_prob(self, outputs: Tensor, action: Tensor) -> Tensor:
        return gaussian_log_prob(outputs, self.log_std, action)

    def sample(self, outputs: Tensor, noise: Tensor) -> Tensor:
        return torch.addcmul(outputs, self.log_std.exp(), noise).clamp(-1, 1)

    def clamp_parameters(self) -> None:
        # Clamped here and not where it is used: beyond a clamp there is no gradient to come back.
        self.log_std.detach().clamp_(CUT_LOG_STD_MIN, CUT_LOG_STD_MAX)


class CategoricalNetwork(StochasticNetwork):
    """The logits of every choice of a Discrete or MultiDiscrete space."""

    def __init__(
        self,
        architecture: Architecture,
        outputs: int,
        generator: torch.Generator,
        *,
        choices: Choices,
    ) -> None:
        super().__init__(architecture, outputs, generator)
        self._choices = choices

    def log_prob(self, outputs: Tensor, action: Tensor) -> Tensor:
        return self._choices.log_prob(outputs, action)

    def sample(self, outputs: Tensor, noise: Tensor) -> Tensor:
        return self._choices.sample(outputs, noise)
