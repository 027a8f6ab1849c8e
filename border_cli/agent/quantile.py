"""Quantile regression of the return: the loss, its derivative and the target of one batch.

Dabney, Rowland, Bellemare and Munos 2018, "Distributional reinforcement learning with quantile
regression", equations 9 and 10. As in Dabney, Ostrovski, Silver and Munos 2018, "Implicit quantile
networks for distributional reinforcement learning", equation 3, the loss is divided by kappa, so
that it becomes the quantile regression loss where kappa becomes 0.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from border_cli.nn.tensor_batch import TensorBatch


class Regression(NamedTuple):
    """What one batch says about the quantiles of Q(s, a)."""

    slope: Tensor  # [B, N]  derivative of the loss by each quantile
    loss: Tensor  # []
    q_mean: Tensor  # []  mean of all quantiles
    target: Tensor  # [B, N']


def quantile_target(batch: TensorBatch, next_quantiles: Tensor) -> Tensor:
    """r + d Z(s', a'), where d is already 0 at the end of an episode. [B, N'] -> [B, N']"""
    return torch.addcmul(batch.reward, batch.discount, next_quantiles)


def regression(
    quantiles: Tensor, fractions: Tensor, target: Tensor, weight: Tensor, kappa: float
) -> Regression:
    """The quantile Huber loss: the sum over quantiles, the mean over targets and over rows.

    quantiles [B, N] at `fractions` [B, N] or [N]; target [B, N']; weight [B, 1] of each row.
    """
    error = target[:, None, :] - quantiles[:, :, None]  # [B, N, N']
    # The derivative of the Huber loss, which with kappa 0 is that of the absolute value.
    bounded = (error / kappa).clamp(-1, 1) if kappa else error.sign()
    beside = fractions[..., None]  # [B, N, 1] or [N, 1]
    pull = torch.where(error < 0, 1 - beside, beside) * bounded  # [B, N, N']
    share = weight / target.numel()  # [B, 1]
    loss = (pull * torch.sub(error, bounded, alpha=kappa / 2)).sum((1, 2))  # [B]
    return Regression(
        slope=pull.sum(2) * -share,
        loss=(loss * share.squeeze(1)).sum(),
        q_mean=quantiles.mean(),
        target=target,
    )


def distance(quantiles: Tensor, target: Tensor) -> Tensor:
    """How far the targets of a row lie from its quantiles, the mean over all pairs.

    The priority of a row: an error of the mean alone would be 0 where only the spread is wrong.
    Of one quantile and one target it is |error|. [..., B, N], [B, N'] -> [..., B]
    """
    return (target[:, None, :] - quantiles[..., None]).abs().mean((-2, -1))
