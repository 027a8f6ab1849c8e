"""Log-probabilities and entropies of a policy's actions, with explicit gradients.

Written for numpy arrays and torch tensors alike.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from itertools import accumulate

import numpy as np

from border_cli.agent.on_policy_policies import LOG_ROOT_2_PI, VARIANCE_FLOOR
from border_cli.nn.arrays import (
    AnyTensor,
    constant,
    library_of,
    log_softmax,
    mask_invalid,
    scatter,
    split,
    take,
)

LOWEST = -1e4  # replaces log 0, because 0 * log 0 is NaN


class Density(ABC):
    """A policy's action distributions for a batch, evaluated at one action per row."""

    log_prob: AnyTensor  # [B]

    @property
    @abstractmethod
    def entropy(self) -> AnyTensor:
        """Entropy of each row's distribution. [B]"""

    @abstractmethod
    def backward(self, by_log_prob: AnyTensor, by_entropy: float) -> tuple[AnyTensor, ...]:
        """Returns the gradients of a loss with respect to outputs and, for a Gaussian, `log_std`,
        from those with respect to log_prob and entropy. [B] -> [B, outputs], [A] or [H, A]"""


class ChoiceDensity(Density):
    """A categorical distribution for each component of an action, with optional masks.

    The logits of all components are concatenated, S = sum(nvec) in total.
    """

    def __init__(
        self,
        nvec: Sequence[int],
        logits: AnyTensor,
        mask: AnyTensor | None,
        action: AnyTensor,
    ) -> None:
        """Shapes: logits and mask [B, S], action [B, K]."""
        self._nvec = nvec
        library = library_of(logits)
        if len(nvec) > 1:
            starts = np.array([0, *accumulate(nvec[:-1])])  # [K]
            action = action + constant(starts, like=action)
        self._columns = action
        parts = split(mask_invalid(logits, mask), nvec)
        log = library.concatenate([log_softmax(part) for part in parts], 1)
        self.log_prob = take(log, action).sum(1)
        self._log = log if mask is None else log.clip(LOWEST, 0)
        self._probability = library.exp(self._log)

    @property
    def entropy(self) -> AnyTensor:
        return -(self._probability * self._log).sum(1)

    def backward(self, by_log_prob: AnyTensor, by_entropy: float) -> tuple[AnyTensor, ...]:
        library, grad = library_of(by_log_prob), by_log_prob[:, None]
        columns = library.broadcast_to(grad, self._columns.shape)
        grad_logits = scatter(columns, self._columns, self._log) - grad * self._probability
        if by_entropy:
            p_log_p = self._probability * self._log
            sums = [
                library.broadcast_to(part.sum(1)[:, None], part.shape)
                for part in split(p_log_p, self._nvec)
            ]
            grad_logits = grad_logits + by_entropy * (
                self._probability * library.concatenate(sums, 1) - p_log_p
            )
        return (grad_logits,)


class GaussianDensity(Density):
    """A diagonal Gaussian, with the same standard deviations in every row unless subclassed."""

    def __init__(self, mean: AnyTensor, log_std: AnyTensor, action: AnyTensor) -> None:
        """Shapes: mean and action [B, A], log_std [A] or [B, A]."""
        self._log_std = log_std
        self._precision = library_of(log_std).exp(-log_std)
        self._standardised = (action - mean) * self._precision
        density = -0.5 * self._standardised**2 - log_std - LOG_ROOT_2_PI  # [B, A]
        self.log_prob = density.sum(1)

    @property
    def entropy(self) -> AnyTensor:
        entropy = (self._log_std + (LOG_ROOT_2_PI + 0.5)).sum(-1)
        return library_of(self._log_std).broadcast_to(entropy, self.log_prob.shape)

    def backward(self, by_log_prob: AnyTensor, by_entropy: float) -> tuple[AnyTensor, ...]:
        grad = by_log_prob[:, None]
        grad_log_std = (grad * (self._standardised**2 - 1)).sum(0)
        grad_log_std = grad_log_std + by_entropy * len(by_log_prob)
        return grad * self._standardised * self._precision, grad_log_std


class StateDependentDensity(GaussianDensity):
    """The density of generalised state-dependent exploration, see `StateDependentPolicy`.

    The last hidden layer is treated as a constant: only `log_std` gets a gradient from the noise,
    as in Stable-Baselines3.
    """

    def __init__(
        self, mean: AnyTensor, log_std: AnyTensor, hidden: AnyTensor, action: AnyTensor
    ) -> None:
        """Shapes: mean and action [B, A], log_std [H, A], hidden [B, H]."""
        self._squares = hidden**2
        self._weight_variance = library_of(log_std).exp(2 * log_std)
        self._variance = self._squares @ self._weight_variance + VARIANCE_FLOOR  # [B, A]
        super().__init__(mean, 0.5 * library_of(mean).log(self._variance), action)

    def backward(self, by_log_prob: AnyTensor, by_entropy: float) -> tuple[AnyTensor, ...]:
        grad = by_log_prob[:, None]
        grad_row = (grad * (self._standardised**2 - 1) + by_entropy) / self._variance
        grad_log_std = (self._squares.T @ grad_row) * self._weight_variance
        return grad * self._standardised * self._precision, grad_log_std
