"""Truncated quantile critics (TQC).

Kuznetsov, Shvechikov, Grishin and Vetrov 2020, "Controlling overestimation bias with truncated
mixture of continuous distributional quantile critics", Algorithm 1: soft actor-critic with critics
that estimate quantiles of the return; targets drop the largest ones. Prioritized replay is not in
the paper. As for other quantile agents, the priority of a transition is the mean distance between
the quantiles of its target and those of the critics, over all pairs and critics.
Deviations: critics have two layers of 256 instead of three of 512 (`critic_hidden`).
`dropped_quantiles` is 2 for every environment; the paper uses 5 for Hopper and 0 for HalfCheetah.
The loss is summed over the critics and not averaged as in the authors' code, which does not affect
Adam's steps. The actor's loss uses the updated critics; in the authors' code, the previous ones.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import torch
from numpy.typing import NDArray
from torch import Tensor

from border_cli.agent.config import TqcConfig
from border_cli.agent.critics import CriticLoss
from border_cli.agent.qrdqn import distance, quantile_regression
from border_cli.agent.sac import ActorLoss, Sizes, SoftActorCritic, policy_loss
from border_cli.nn.batch import TensorBatch


def truncate_quantiles(quantiles: Tensor, dropped: int) -> Tensor:
    """Pools the quantiles of all critics and removes the largest, `dropped` per critic.

    [E, B, M] -> [B, E (M - dropped)], sorted
    """
    members, rows, count = quantiles.shape
    pooled = quantiles.transpose(0, 1).reshape(rows, members * count)
    return pooled.sort(dim=1).values[:, : members * (count - dropped)]


def soft_quantiles(
    batch: TensorBatch, next_quantiles: Tensor, log_prob: Tensor, ent_coef: Tensor
) -> Tensor:
    """Returns y_k = r + d (z_k(s', a') - alpha log pi(a'|s')), equation 11.

    d is 0 if s' is terminal. [B, K], [B, 1], [] -> [B, K]
    """
    return torch.addcmul(batch.reward, batch.discount, next_quantiles - ent_coef * log_prob)


def quantile_loss(quantiles: Tensor, target: Tensor, weight: Tensor) -> Tensor:
    """Returns the sum over critics of the mean quantile Huber loss, threshold 1 (equation 13).

    quantiles: [E, B, M] at (2 m - 1) / (2 M), target: [B, K], weight: [B, 1] -> []
    """
    count = quantiles.shape[2]
    fractions = (torch.arange(count, device=quantiles.device, dtype=quantiles.dtype) + 0.5) / count
    with torch.no_grad():  # explicit gradient: autograd would store several [B, M, K] per critic
        results = [
            quantile_regression(member, fractions, target, weight, kappa=1.0)
            for member in quantiles
        ]
        grad_output = torch.stack([result.grad_output for result in results])  # [E, B, M]
        loss = torch.stack([result.loss for result in results]).sum()
    return (loss + (grad_output * (quantiles - quantiles.detach())).sum()) / count


def mean_distance(q: Tensor, target: Tensor) -> Callable[[], NDArray[Any]]:
    """Returns a function that computes priorities: the mean of `distance` over critics.

    [E, B, M], [B, K] -> () -> [B]
    """
    return lambda: distance(q, target).mean(dim=0).cpu().numpy()


class Tqc(SoftActorCritic):
    """Soft actor-critic with truncated quantile critics. Called by the learner thread only."""

    name: ClassVar[str] = "tqc"
    config: TqcConfig
    td_error = staticmethod(mean_distance)

    def sizes(self) -> Sizes:
        return super().sizes()._replace(critic_outputs=self.config.num_quantiles)

    def critic_loss(self, batch: TensorBatch, noise: Tensor, ent_coef: Tensor) -> CriticLoss:
        """Returns the quantile losses of all critics. `noise` is for the next actions. [B, A]"""
        with torch.no_grad():
            action, log_prob = self.sample_action(batch.next_obs, noise)
            q_next = self.critics.target(batch.next_obs, action)  # [E, B, M]
            truncated_quantiles = truncate_quantiles(
                q_next, self.config.dropped_quantiles
            )  # [B, K]
            y = soft_quantiles(batch, truncated_quantiles, log_prob, ent_coef)  # [B, K]
        q = self.critics.online(batch.obs, batch.action)  # [E, B, M]
        loss = quantile_loss(q, y, batch.weight)
        return CriticLoss(loss, q.detach(), y, {"q_mean": q.detach().mean()})

    def actor_loss(self, batch: TensorBatch, noise: Tensor, ent_coef: Tensor) -> ActorLoss:
        """Returns the actor loss, with the mean of all critics' quantiles as Q (equation 14)."""
        action, log_prob = self.sample_action(batch.obs, noise)
        q = self.critics.frozen(batch.obs, action)  # [E, B, M]
        value = q.mean(dim=(0, 2)).unsqueeze(1)  # [B, 1]
        return policy_loss(value, log_prob, ent_coef, batch.weight)
