"""Distributions over actions, and networks that learn the log-density of actions.

A Gaussian squashed by tanh into -1 … 1: Haarnoja et al. 2018, "Soft actor-critic algorithms and
applications", Appendix C. The network of a squashed Gaussian outputs the mean and the log standard
deviation of each action dimension.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

import numpy as np
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

BOUND = 1 - 1e-6  # clips recorded actions: atanh is infinite at the bounds


def split(outputs: Tensor) -> tuple[Tensor, Tensor]:
    """Splits the outputs of a network into mean and log_std. [B, 2 A] -> [B, A], [B, A]"""
    mean, log_std = outputs.chunk(2, dim=1)
    return mean, log_std.clamp(SQUASHED_LOG_STD_MIN, SQUASHED_LOG_STD_MAX)


def sample(mean: Tensor, log_std: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
    """Returns tanh(mean + std noise) and its log-density, both differentiable. [B, A], [B, 1]"""
    pre_tanh = torch.addcmul(mean, log_std.exp(), noise)  # [B, A]
    density = normal_log_density(noise, log_std) - _log_slope(pre_tanh)
    return torch.tanh(pre_tanh), density.sum(dim=1, keepdim=True)


def log_prob(mean: Tensor, log_std: Tensor, action: Tensor) -> Tensor:
    """Returns the log-density of an action in [-1, 1], e.g. of a data set. [B, A] -> [B, 1]"""
    pre_tanh = torch.atanh(action.clamp(-BOUND, BOUND))  # [B, A]
    standardised = (pre_tanh - mean) * torch.exp(-log_std)
    density = normal_log_density(standardised, log_std) - _log_slope(pre_tanh)
    return density.sum(dim=1, keepdim=True)


def normal_log_density(standardised: Tensor, log_std: Tensor) -> Tensor:
    """Returns the log-density of a Gaussian at (x - mean) / std, for each dimension. [B, A]"""
    return -0.5 * standardised.square() - log_std - 0.5 * math.log(2 * math.pi)


def _log_slope(pre_tanh: Tensor) -> Tensor:
    """Returns log(1 - tanh(x)^2), accurate for large |x|. [B, A]"""
    return 2 * (math.log(2) - pre_tanh - F.softplus(-2 * pre_tanh))


def gaussian_log_prob(mean: Tensor, log_std: Tensor, action: Tensor) -> Tensor:
    """Returns the log-density of N(mean, std). [B, A], [A], [B, A] -> [B, 1]"""
    standardised = (action - mean) * torch.exp(-log_std)
    return normal_log_density(standardised, log_std).sum(dim=1, keepdim=True)


class StochasticNetwork(Network, ABC):
    """A network that outputs the parameters of a distribution over actions."""

    @abstractmethod
    def log_prob(self, outputs: Tensor, action: Tensor) -> Tensor:
        """Returns the log-density of a batch's actions. [B, outputs], [B, A] or [B, K] -> [B, 1]"""

    @abstractmethod
    def sample(self, outputs: Tensor, noise: Tensor) -> Tensor:
        """Samples an action per row, as input of critics. [B, outputs], [B, A] -> [B, A]"""

    def clamp_parameters(self) -> None:
        """Clamps parameters to their range; called after every step of the optimizer."""


class GaussianNetwork(StochasticNetwork):
    """N(tanh(x), std), clipped to [-1, 1], with state-independent standard deviations.

    The authors of AWAC and IQL use it, AWAC's without clipping. Samples are not squashed by tanh,
    so recorded actions at the bounds have a finite density. `NumpyNetwork` outputs x, and the
    policy computes the rest.
    """

    def __init__(self, architecture: Architecture, outputs: int, rng: np.random.Generator) -> None:
        super().__init__(architecture, outputs, rng)
        self.log_std = nn.Parameter(torch.zeros(outputs))  # [A]

    def forward(self, features: FeatureTensors) -> Tensor:
        return torch.tanh(super().forward(features))  # [B, A]

    def log_prob(self, outputs: Tensor, action: Tensor) -> Tensor:
        return gaussian_log_prob(outputs, self.log_std, action)

    def sample(self, outputs: Tensor, noise: Tensor) -> Tensor:
        return torch.addcmul(outputs, self.log_std.exp(), noise).clamp(-1, 1)

    def clamp_parameters(self) -> None:
        # The parameter itself is clamped: a clamp in the forward pass has no gradient beyond its
        # range.
        self.log_std.detach().clamp_(CUT_LOG_STD_MIN, CUT_LOG_STD_MAX)


class CategoricalNetwork(StochasticNetwork):
    """A network that outputs the logits of all choices of a Discrete or MultiDiscrete space."""

    def __init__(
        self,
        architecture: Architecture,
        outputs: int,
        rng: np.random.Generator,
        *,
        choices: Choices,
    ) -> None:
        super().__init__(architecture, outputs, rng)
        self._choices = choices

    def log_prob(self, outputs: Tensor, action: Tensor) -> Tensor:
        return self._choices.log_prob(outputs, action)

    def sample(self, outputs: Tensor, noise: Tensor) -> Tensor:
        return self._choices.sample(outputs, noise)
