"""Categorical distributions over MultiDiscrete actions; Discrete is the case of one component.

The outputs of all components are concatenated, S = sum(nvec) in total.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import torch
from torch import Tensor


class Choices:
    """K independent softmax distributions, one for each component of an action."""

    def __init__(self, nvec: Sequence[int], device: torch.device | None = None) -> None:
        self.nvec = list(nvec)
        self.size = sum(nvec)
        self.is_single = len(nvec) == 1
        self._offsets = torch.tensor([0, *accumulate(nvec[:-1])], device=device)  # [K]

    def columns(self, action: Tensor) -> Tensor:
        """Returns the indices of an action's outputs. [B, K] -> [B, K]"""
        return action if self.is_single else action + self._offsets

    def one_hot(self, action: Tensor) -> Tensor:
        """Returns the concatenated one-hot vectors of the components. [B, K] -> [B, S]"""
        zeros = torch.zeros(len(action), self.size, device=action.device)
        return zeros.scatter_(1, self.columns(action), 1.0)

    def log_softmax(self, logits: Tensor) -> Tensor:
        """Returns the log-probability of each choice. [B, S] -> [B, S]"""
        if self.is_single:
            return logits.log_softmax(1)
        parts = logits.split_with_sizes(self.nvec, 1)
        return torch.cat([part.log_softmax(1) for part in parts], dim=1)

    def largest_entropy(self, mask: Tensor) -> Tensor:
        """Returns the entropy, in nats, of equally likely valid choices. [B, S] -> [B, 1]"""
        counts = [part.sum(1, keepdim=True) for part in mask.split_with_sizes(self.nvec, 1)]
        return torch.cat(counts, dim=1).log().sum(dim=1, keepdim=True)

    def log_prob(self, logits: Tensor, action: Tensor) -> Tensor:
        """Returns an action's log-probability, summed over components. [B, S], [B, K] -> [B, 1]"""
        log_probs = self.log_softmax(logits).gather(1, self.columns(action))  # [B, K]
        return log_probs if self.is_single else log_probs.sum(dim=1, keepdim=True)

    def sample(self, logits: Tensor, uniform: Tensor) -> Tensor:
        """Samples a one-hot action, with one uniform number per choice. [B, S], [B, S] -> [B, S]"""
        if self.is_single:
            return gumbel_max(logits, uniform)
        parts = (values.split_with_sizes(self.nvec, 1) for values in (logits, uniform))
        pairs = zip(*parts, strict=True)
        return torch.cat([gumbel_max(*pair) for pair in pairs], dim=1)


def gumbel_max(logits: Tensor, uniform: Tensor) -> Tensor:
    """Samples a one-hot action from softmax(logits), with one uniform number per choice.

    The argmax of logits + Gumbel noise has this distribution. [B, n], [B, n] -> [B, n]
    """
    best = (logits - torch.log(-torch.log(uniform))).argmax(dim=1, keepdim=True)
    return torch.zeros_like(logits).scatter_(1, best, 1.0)
