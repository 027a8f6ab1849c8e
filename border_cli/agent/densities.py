"""Log-probabilities and entropies of a policy's actions, with explicit gradients.

Autograd's overhead would exceed the computation, and its first call with `grad_outputs` imports
sympy (0.3 s).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

import torch
from torch import Tensor

from border_cli.nn.choices import Choices
from border_cli.nn.distributions import normal_log_density
from border_cli.nn.tensor_batch import mask_invalid

LOWEST = -1e4  # replaces log 0, because 0 * log 0 is NaN
LOG_ROOT_2_PI_E = 0.5 * math.log(2 * math.pi * math.e)


class Density(ABC):
    """A policy's action distributions for a batch, evaluated at one action per row."""

    log_prob: Tensor  # [B]

    @property
    @abstractmethod
    def entropy(self) -> Tensor:
        """Entropy of each row's distribution. [B]"""

    @abstractmethod
    def backward(self, by_log_prob: Tensor, by_entropy: float) -> tuple[Tensor, ...]:
        """Returns the gradients of a loss with respect to the policy's outputs, and `log_std` of a
        Gaussian, from those with respect to log_prob and entropy. [B] -> [B, outputs], [A]"""


class ChoiceDensity(Density):
    """A categorical distribution for each component of an action, with optional masks."""

    def __init__(
        self, choices: Choices, logits: Tensor, mask: Tensor | None, action: Tensor
    ) -> None:
        """Shapes: logits and mask [B, S], action [B, K]."""
        self._choices = choices
        self._columns = choices.columns(action)
        log = choices.log_softmax(mask_invalid(logits, mask))
        self.log_prob = log.gather(1, self._columns).sum(1)
        self._log = log if mask is None else log.clamp(min=LOWEST)
        self._probability = self._log.exp()

    @property
    def entropy(self) -> Tensor:
        return -(self._probability * self._log).sum(1)

    def backward(self, by_log_prob: Tensor, by_entropy: float) -> tuple[Tensor, ...]:
        grad = by_log_prob[:, None]
        grad_logits = self._probability * -grad
        grad_logits.scatter_add_(1, self._columns, grad.expand(self._columns.shape))
        if by_entropy:
            p_log_p = self._probability * self._log
            parts = p_log_p.split_with_sizes(self._choices.nvec, 1)
            sums = torch.cat([part.sum(1, keepdim=True).expand_as(part) for part in parts], 1)
            grad_logits += by_entropy * (self._probability * sums - p_log_p)
        return (grad_logits,)


class GaussianDensity(Density):
    """A Gaussian whose standard deviations are the same in every row."""

    def __init__(self, mean: Tensor, log_std: Tensor, action: Tensor) -> None:
        """Shapes: mean and action [B, A], log_std [A]."""
        self._log_std = log_std
        self._precision = torch.exp(-log_std)
        self._standardised = (action - mean) * self._precision
        self.log_prob = normal_log_density(self._standardised, log_std).sum(1)

    @property
    def entropy(self) -> Tensor:
        return (self._log_std + LOG_ROOT_2_PI_E).sum().expand(len(self.log_prob))

    def backward(self, by_log_prob: Tensor, by_entropy: float) -> tuple[Tensor, ...]:
        grad = by_log_prob[:, None]
        grad_log_std = (grad * (self._standardised.square() - 1)).sum(0)
        grad_log_std += by_entropy * len(by_log_prob)
        return grad * self._standardised * self._precision, grad_log_std
