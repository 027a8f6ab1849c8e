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

from border_cli.agent.config import TqcConfig
from border_cli.agent.critics import CriticLoss
from border_cli.agent.qrdqn import distance, quantile_regression
from border_cli.agent.sac import ActorLoss, SoftActorCritic, policy_loss, scale_rewards
from border_cli.core.spaces import EnvSpec
from border_cli.core.types import Update
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


def mean_distance(quantiles: Tensor, target: Tensor) -> Callable[[], NDArray[Any]]:
    """The priority of each row: the mean over critics of their distance from the target.

    [E, B, M], [B, K] -> () -> [B]
    """
    return lambda: distance(quantiles, target).mean(dim=0).cpu().numpy()


class Tqc(SoftActorCritic):
    """Soft actor-critic on quantiles; the learner's thread calls it."""

    name: ClassVar[str] = "tqc"
    config: TqcConfig

    def __init__(self, config: TqcConfig, *, spec: EnvSpec, device: str, seed: int) -> None:
        super().__init__(
            config, spec=spec, device=device, seed=seed, critic_outputs=config.num_quantiles
        )
        self._critic_loss = self.compiled(self.critic_loss)
        self._actor_loss = self.compiled(self.actor_loss)

    def learn(self, batch: TensorBatch) -> Update:
        """Algorithm 1: critics, actor and coefficient (every `policy_delay` updates), targets."""
        batch = scale_rewards(batch, self.config.reward_scale)
        ent_coef = self.ent_coef()
        critic = self._critic_loss(batch, self.normal(*batch.action.shape), ent_coef)
        metrics = {**critic.metrics, "ent_coef": ent_coef}
        metrics |= self.critics.update(critic.loss)
        if self.opt_steps % self.config.policy_delay == 0:
            actor = self._actor_loss(batch, self.normal(*batch.action.shape), ent_coef)
            metrics |= self.update_actor(actor, batch.weight)
        self.critics.update_target()
        return Update(metrics=metrics, td_error=mean_distance(critic.q, critic.target))

    def critic_loss(self, batch: TensorBatch, noise: Tensor, ent_coef: Tensor) -> CriticLoss:
        """The quantile losses of all critics; `noise` is that of the next actions. [B, A]"""
        with torch.no_grad():
            action, log_prob = self.sample_action(batch.next_obs, noise)
            q_next = self.critics.target(batch.next_obs, action)  # [E, B, M]
            kept = truncated(q_next, self.config.dropped_quantiles)  # [B, K]
            y = soft_quantiles(batch, kept, log_prob, ent_coef)  # [B, K]
        q = self.critics.online(batch.obs, batch.action)  # [E, B, M]
        loss = quantile_loss(q, y, batch.weight)
        return CriticLoss(loss, q.detach(), y, {"q_mean": q.detach().mean()})

    def actor_loss(self, batch: TensorBatch, noise: Tensor, ent_coef: Tensor) -> ActorLoss:
        """The loss of the actor, by the mean of all quantiles of all critics (equation 14)."""
        action, log_prob = self.sample_action(batch.obs, noise)
        q = self.critics.frozen(batch.obs, action)  # [E, B, M]
        value = q.mean(dim=(0, 2)).unsqueeze(1)  # [B, 1]
        return policy_loss(value, log_prob, ent_coef, batch.weight)
