"""Truncated quantile critics.

Kuznetsov, Shvechikov, Grishin and Vetrov 2020, "Controlling overestimation bias with truncated
mixture of continuous distributional quantile critics", Algorithm 1: soft actor-critic whose
critics give quantiles of the return, of which targets leave the largest out. The paper has no
prioritized replay: the priority of a row is how far the quantiles of its target lie from those of
the critics, the mean over all pairs and all critics, as for the other agents that learn quantiles.
Deviations: critics have two layers of 256, the authors' three of 512 (`critic_hidden`).
`dropped_quantiles` is 2 everywhere, the paper's 5 for Hopper and 0 for HalfCheetah. The loss is a
sum over critics, in the authors' code a mean, which leaves Adam's steps as they are; and there the
actor is updated before the critics, here after them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import torch
from numpy.typing import NDArray
from torch import Tensor

from border_cli.agent.actor_critic import CriticLoss
from border_cli.agent.config import TqcConfig
from border_cli.agent.qrdqn import distance, quantile_regression
from border_cli.agent.sac import SoftActorCritic
from border_cli.core.spaces import EnvSpec
from border_cli.nn.features import FeatureTensors
from border_cli.nn.tensor_batch import TensorBatch


def truncated(quantiles: Tensor, dropped: int) -> Tensor:
    """All quantiles of all critics but the largest, `dropped` for each critic.

    [E, B, M] -> [B, E (M - dropped)], in order
    """
    members, rows, count = quantiles.shape
    pooled = quantiles.transpose(0, 1).reshape(rows, members * count)
    return pooled.sort(dim=1).values[:, : members * (count - dropped)]


def soft_quantiles(
    batch: TensorBatch, next_quantiles: Tensor, log_prob: Tensor, ent_coef: Tensor
) -> Tensor:
    """y_k = r + d (z_k(s', a') - alpha log pi(a'|s')); d is 0 if s' is terminal (equation 11).

    [B, K], [B, 1], [] -> [B, K]
    """
    return torch.addcmul(batch.reward, batch.discount, next_quantiles - ent_coef * log_prob)


def quantile_loss(quantiles: Tensor, target: Tensor, weight: Tensor) -> Tensor:
    """Sum over critics of the mean quantile Huber loss of all pairs, its threshold 1 (equation 13).

    quantiles: [E, B, M] at (2 m - 1) / (2 M), target: [B, K], weight: [B, 1] -> []
    """
    count = quantiles.shape[2]
    fractions = (torch.arange(count, device=quantiles.device, dtype=quantiles.dtype) + 0.5) / count
    with torch.no_grad():  # its gradient is written out: autograd would keep several [B, M, K] each
        found = [
            quantile_regression(each, fractions, target, weight, kappa=1.0) for each in quantiles
        ]
        grad_output = torch.stack([each.grad_output for each in found])  # [E, B, M]
        loss = torch.stack([each.loss for each in found]).sum()
    return (loss + (grad_output * (quantiles - quantiles.detach())).sum()) / count


class Tqc(SoftActorCritic):
    """Soft actor-critic on quantiles; the learner's thread calls it."""

    name: ClassVar[str] = "tqc"
    config: TqcConfig

    def __init__(self, config: TqcConfig, *, spec: EnvSpec, device: str, seed: int) -> None:
        super().__init__(
            config, spec=spec, device=device, seed=seed, critic_outputs=config.num_quantiles
        )

    def critic_loss(self, batch: TensorBatch, noise: Tensor, ent_coef: Tensor) -> CriticLoss:
        with torch.no_grad():
            action, log_prob = self.sampled(batch.next_obs, noise)
            q_next = self.critic_target(batch.next_obs, action)  # [E, B, M]
            kept = truncated(q_next, self.config.dropped_quantiles)  # [B, K]
            y = soft_quantiles(batch, kept, log_prob, ent_coef)  # [B, K]
        q = self.critic(batch.obs, batch.action)  # [E, B, M]
        loss = quantile_loss(q, y, batch.weight)
        return CriticLoss(loss, q.detach(), y, {"q_mean": q.detach().mean()})

    def td_error(self, found: CriticLoss) -> Callable[[], NDArray[Any]]:
        q, target = found.q, found.target  # the loss need not live as long
        return lambda: distance(q, target).mean(dim=0).cpu().numpy()

    def actor_value(self, features: FeatureTensors, action: Tensor) -> Tensor:
        """The mean of all quantiles of all critics, none left out (equation 14)."""
        q: Tensor = self.frozen_critic(features, action)  # [E, B, M]
        return q.mean(dim=(0, 2)).unsqueeze(1)
