"""The formula of deep Q-learning: targets, loss and gradient of one batch. Changes nothing.

Mnih et al. 2015, "Human-level control through deep reinforcement learning", Algorithm 1.
`double`: van Hasselt, Guez and Silver 2016, "Deep reinforcement learning with double Q-learning".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from border_cli.agent.config import Loss
from border_cli.nn.backprop import Gradient, Layer, backward, forward
from border_cli.nn.tensor_batch import TensorBatch


class Descent(NamedTuple):
    """What one batch says about the online network."""

    gradient: Gradient  # of the loss, by the weights of the online network
    loss: Tensor  # []
    q_mean: Tensor  # []  mean of Q(s, a)
    error: Tensor  # [B, 1]  Q(s, a) - y


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


def descent(
    online: Sequence[Layer],
    target: Sequence[Layer],
    batch: TensorBatch,
    *,
    double: bool,
    loss: Loss,
) -> Descent:
    """The loss of one batch and its gradient; changes nothing."""
    assert isinstance(batch.obs, Tensor)
    assert isinstance(batch.next_obs, Tensor)
    given = forward(online, batch.obs)
    q_next = forward(target, batch.next_obs)[-1]  # [B, num_actions]
    chooser = forward(online, batch.next_obs)[-1] if double else None

    q = given[-1]  # [B, num_actions]
    q_sa = q.gather(1, batch.action)  # [B, 1]
    error = q_sa - td_target(batch, q_next, chooser)  # [B, 1]
    mean, slope = weighted_loss(error, batch.weight, loss)
    by_q = torch.zeros_like(q).scatter_(1, batch.action, slope)  # [B, num_actions]
    return Descent(backward(online, given, by_q), mean, q_sa.mean(), error)
