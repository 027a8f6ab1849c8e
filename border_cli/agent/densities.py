"""Log-probabilities and entropies of a policy's actions, and their derivatives, written out.

Autograd's bookkeeping would cost more than they do, and its first call with a derivative imports
sympy (0.3 s).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

import torch
from torch import Tensor

from border_cli.nn.choices import Choices
from border_cli.nn.distributions import normal_log_density
from border_cli.nn.tensor_batch import masked

LOWEST = -1e4  # in place of the logarithm of 0, which times 0 is no number
LOG_ROOT_2_PI_E = 0.5 * math.log(2 * math.pi * math.e)


class Density(ABC):
    """A policy's distribution in each row, and one action of each."""

    log_prob: Tensor  # [B]

    @property
    @abstractmethod
    def entropy(self) -> Tensor:
        """[B]"""

    @abstractmethod
    def derivative(self, by_log_prob: Tensor, by_entropy: float) -> tuple[Tensor, ...]:
        """The derivative of a loss by the policy's outputs, and by `log_std` of a Gaussian, from
        those by the log-probabilities and by each row's entropy. [B] -> [B, outputs], [A]"""


class ChoiceDensity(Density):
    """A softmax for each component of an action; a mask makes choices impossible."""

    def __init__(
        self, choices: Choices, logits: Tensor, mask: Tensor | None, action: Tensor
    ) -> None:
        """[B, S], [B, S], [B, K]"""
        self._choices = choices
        self._columns = choices.columns(action)
        log = choices.log_softmax(masked(logits, mask))
        self.log_prob = log.gather(1, self._columns).sum(1)
        self._log = log if mask is None else log.clamp(min=LOWEST)
        self._chance = self._log.exp()

    @property
    def entropy(self) -> Tensor:
        return -(self._chance * self._log).sum(1)

    def derivative(self, by_log_prob: Tensor, by_entropy: float) -> tuple[Tensor, ...]:
        by_row = by_log_prob[:, None]
        result = self._chance * -by_row
        result.scatter_add_(1, self._columns, by_row.expand(self._columns.shape))
        if by_entropy:
            of_choices = self._chance * self._log
            parts = of_choices.split_with_sizes(self._choices.nvec, 1)
            minus = torch.cat([part.sum(1, keepdim=True).expand_as(part) for part in parts], 1)
            result += by_entropy * (self._chance * minus - of_choices)
        return (result,)


class GaussianDensity(Density):
    """A Gaussian whose deviations are the same in every row."""

    def __init__(self, mean: Tensor, log_std: Tensor, action: Tensor) -> None:
        """[B, A], [A], [B, A]"""
        self._log_std = log_std
        self._precision = torch.exp(-log_std)
        self._standardised = (action - mean) * self._precision
        self.log_prob = normal_log_density(self._standardised, log_std).sum(1)

    @property
    def entropy(self) -> Tensor:
        return (self._log_std + LOG_ROOT_2_PI_E).sum().expand(len(self.log_prob))

    def derivative(self, by_log_prob: Tensor, by_entropy: float) -> tuple[Tensor, ...]:
        by_row = by_log_prob[:, None]
        by_log_std = (by_row * (self._standardised.square() - 1)).sum(0)
        by_log_std += by_entropy * len(by_log_prob)
        return by_row * self._standardised * self._precision, by_log_std
