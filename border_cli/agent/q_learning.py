"""The formula of deep Q-learning: targets, loss and gradient of one batch. Changes nothing.

Mnih et al. 2015, "Human-level control through deep reinforcement learning", Algorithm 1.
`double`: van Hasselt, Guez and Silver 2016, "Deep reinforcement learning with double Q-learning".
`conservative`: Kumar, Zhou, Tucker and Levine 2020, "Conservative Q-learning for offline
reinforcement learning", equation 4 (CQL(H)).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import torch
from torch import Tensor, nn

from border_cli.agent.config import Loss
from border_cli.nn.backprop import Gradient, Layer, backward, forward
from border_cli.nn.tensor_batch import TensorBatch


class Found(NamedTuple):
    """What one batch says about what the online network put out."""

    slope: Tensor  # [B, outputs]  derivative of the loss by the outputs
    loss: Tensor  # []  without the conservative part
    q_mean: Tensor  # []  mean of Q(s, a)
    error: Tensor  # [B, 1]  y - Q(s, a); of distributions how far they are apart
    gap: Tensor | None = None  # []  mean of logsumexp Q(s, ·) - Q(s, a), where it is weighted


def kept(found: Found) -> Found:
    """The same in memory of its own, but for the slope, which is not read later."""
    gap = None if found.gap is None else found.gap.clone()
    loss, q_mean, error = found.loss.clone(), found.q_mean.clone(), found.error.clone()
    return Found(found.slope, loss, q_mean, error, gap)


class Formula(Protocol):
    """From outputs for s of the online network, for s' of the target network, and for s' of the
    online network where that chooses the next action; all [B, outputs]."""

    def __call__(
        self, outputs: Tensor, next_outputs: Tensor, chooser: Tensor | None, batch: TensorBatch
    ) -> Found: ...


def td_target(batch: TensorBatch, q_next: Tensor, chooser: Tensor | None) -> Tensor:
    """What Q(s, a) should have been, for every row. [B, 1]

    y = r + d max_a' Q_target(s', a'), where d is already 0 at the end of an episode. With a
    `chooser`, the online network's values: y = r + d Q_target(s', argmax_a' Q(s', a')).
    """
    if chooser is None:
        value = q_next.amax(dim=1, keepdim=True)  # [B, 1]
    else:
        value = q_next.gather(1, chooser.argmax(dim=1, keepdim=True))  # [B, 1]
    return torch.addcmul(batch.reward, batch.discount, value)


def weighted_loss(error: Tensor, weight: Tensor, kind: Loss) -> tuple[Tensor, Tensor]:
    """Mean of weight * loss(error), and its derivative by each error. [], [B, 1]

    The weight stands outside the loss, so that it is not squared with the error.
    """
    share = weight / len(error)  # [B, 1]
    if kind == Loss.mse:
        slope = share * error * 2
        return torch.sum(slope * error) / 2, slope
    bounded = error.clamp(-1, 1)
    slope = share * bounded
    return torch.sum(slope * torch.sub(error, bounded, alpha=0.5)), slope


def conservative(q: Tensor, action: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Mean of weight * (logsumexp Q(s, ·) - Q(s, a)), and its derivative by Q. [], [B, A]"""
    share = weight / len(q)  # [B, 1]
    gap = torch.sum(share * (q.logsumexp(1, keepdim=True) - q.gather(1, action)))
    return gap, (share * q.softmax(1)).scatter_add_(1, action, -share)


def learned(
    q: Tensor,
    q_next: Tensor,
    chooser: Tensor | None,
    batch: TensorBatch,
    *,
    loss: Loss,
    conservative_weight: float = 0.0,
) -> Found:
    """What a batch says about Q(s, ·). q, q_next, chooser [B, num_actions]"""
    q_sa = q.gather(1, batch.action)  # [B, 1]
    error = q_sa - td_target(batch, q_next, chooser)  # [B, 1]
    mean, slope = weighted_loss(error, batch.weight, loss)
    by_q = torch.zeros_like(q).scatter_(1, batch.action, slope)  # [B, num_actions]
    gap = None
    if conservative_weight:
        gap, by_gap = conservative(q, batch.action, batch.weight)
        by_q = torch.add(by_q, by_gap, alpha=conservative_weight)
    return Found(by_q, mean, q_sa.mean(), -error, gap)


def descent(
    online: Sequence[Layer],
    target: Sequence[Layer],
    batch: TensorBatch,
    *,
    formula: Formula,
    double: bool,
) -> tuple[Gradient, Found]:
    """The gradient of the loss by all weights of dense layers with ReLU, written out."""
    assert isinstance(batch.obs, Tensor)
    assert isinstance(batch.next_obs, Tensor)
    given = forward(online, batch.obs)
    next_outputs = forward(target, batch.next_obs)[-1]
    chooser = forward(online, batch.next_obs)[-1] if double else None
    found = formula(given[-1], next_outputs, chooser, batch)
    return backward(online, given, found.slope), found


def descent_by_autograd(
    online: nn.Module,
    target: nn.Module,
    batch: TensorBatch,
    noise: Tensor | None,
    *,
    formula: Formula,
    double: bool,
) -> tuple[Tensor, Found]:
    """The same for any network up to its outputs, from which autograd finds the way back.

    Each of the passes has its own noise, where there is any. [3, draws]
    """

    def outputs_of(network: nn.Module, features: object, which: int) -> Tensor:
        result: Tensor = network(features) if noise is None else network(features, noise[which])
        return result

    outputs = outputs_of(online, batch.obs, 0)
    with torch.no_grad():
        next_outputs = outputs_of(target, batch.next_obs, 1)
        chooser = outputs_of(online, batch.next_obs, 2) if double else None
        found = formula(outputs.detach(), next_outputs, chooser, batch)
    return outputs, found
