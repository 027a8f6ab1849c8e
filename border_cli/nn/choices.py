"""Actions of several components, each one of so many choices: MultiDiscrete, and Discrete of one.

Outputs of all components lie side by side, S = sum(nvec) in all.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import torch
from torch import Tensor


class Choices:
    """A softmax distribution for each of K components, independent of each other."""

    def __init__(self, nvec: Sequence[int], device: torch.device | None = None) -> None:
        self.nvec = list(nvec)
        self.size = sum(nvec)
        self.is_single = len(nvec) == 1
        self._offsets = torch.tensor([0, *accumulate(nvec[:-1])], device=device)  # [K]

    def columns(self, action: Tensor) -> Tensor:
        """Which of the outputs are those of an action. [B, K] -> [B, K]"""
        return action if self.is_single else action + self._offsets

    def one_hot(self, action: Tensor) -> Tensor:
        """The components' one-hot vectors, side by side. [B, K] -> [B, S]"""
        zeros = torch.zeros(len(action), self.size, device=action.device)
        return zeros.scatter_(1, self.columns(action), 1.0)

    def log_softmax(self, logits: Tensor) -> Tensor:
        """The logarithm of the probability of each choice. [B, S] -> [B, S]"""
        if self.is_single:
            return logits.log_softmax(1)
        parts = logits.split_with_sizes(self.nvec, 1)
        return torch.cat([each.log_softmax(1) for each in parts], dim=1)

    def largest_entropy(self, mask: Tensor) -> Tensor:
        """That of equally likely valid choices, in nats. [B, S] -> [B, 1]"""
        counts = [each.sum(1, keepdim=True) for each in mask.split_with_sizes(self.nvec, 1)]
        return torch.cat(counts, dim=1).log().sum(dim=1, keepdim=True)

    def log_prob(self, logits: Tensor, action: Tensor) -> Tensor:
        """Of an action: the sum over its components. [B, S], [B, K] -> [B, 1]"""
        of_each = self.log_softmax(logits).gather(1, self.columns(action))  # [B, K]
        return of_each if self.is_single else of_each.sum(dim=1, keepdim=True)

    def sample(self, logits: Tensor, uniform: Tensor) -> Tensor:
        """An action, one-hot, by one uniform number for each choice. [B, S], [B, S] -> [B, S]"""
        if self.is_single:
            return gumbel_max(logits, uniform)
        parts = (each.split_with_sizes(self.nvec, 1) for each in (logits, uniform))
        pairs = zip(*parts, strict=True)
        return torch.cat([gumbel_max(*each) for each in pairs], dim=1)


def gumbel_max(logits: Tensor, uniform: Tensor) -> Tensor:
    """An action of probability softmax(logits), one-hot, by one uniform number for each.

    The highest of logits + Gumbel noise has this distribution. [B, n], [B, n] -> [B, n]
    """
    best = (logits - torch.log(-torch.log(uniform))).argmax(dim=1, keepdim=True)
    return torch.zeros_like(logits).scatter_(1, best, 1.0)
