"""A Gaussian squashed by tanh into -1 … 1.

Haarnoja et al. 2018, "Soft actor-critic algorithms and applications", Appendix C. A network puts
out the mean and the logarithm of the deviation of each action dimension; nothing is exponentiated
but here, once.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F  # noqa: N812 - as all of torch's users call it
from torch import Tensor

from border_cli.nn.gaussian_range import SQUASHED_LOG_STD_MAX, SQUASHED_LOG_STD_MIN

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
