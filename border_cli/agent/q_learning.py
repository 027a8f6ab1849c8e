"""The formula of deep Q-learning: targets, loss and its slope. Changes nothing.

Mnih et al. 2015, "Human-level control through deep reinforcement learning", Algorithm 1.
`double`: van Hasselt, Guez and Silver 2016, "Deep reinforcement learning with double Q-learning".
`conservative`: Kumar, Zhou, Tucker and Levine 2020, "Conservative Q-learning for offline
reinforcement learning", equation 4 (CQL(H)).
"""

from __future__ import annotations

import torch
from torch import Tensor

from border_cli.agent.config import Loss
from border_cli.agent.descent import Found
from border_cli.nn.tensor_batch import TensorBatch


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
