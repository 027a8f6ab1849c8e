"""Advantage weighted actor-critic.

Nair, Dalal, Gupta and Levine 2020, "AWAC: accelerating online reinforcement learning with offline
datasets", Algorithm 1: critics by the actor's own actions (equation 4), and an actor that clones
the actions of the data, weighted by exp(A / lambda) (equation 13).
As in the authors' code, values are the smallest of the critics', V(s) is Q of one sampled action,
and all losses of an update see the same weights.
Deviations: weights are cut at `exp_adv_max` instead of normalised by Z(s), which the paper found to
do harm; the authors' code divides them by their sum over the batch (`adv_softmax`). `inv_lambda` is
3, a lambda of 1/3, where that code has a lambda of 1, and of 2 for MuJoCo's Ant, HalfCheetah and
Walker2d. Batches have 256 rows instead of 1,024, the actor no weight decay (1e-4) and two layers of
256 (four for MuJoCo). Its deviations, one per action dimension in both, begin at 1 and stay between
exp(-5) and exp(2), there they begin at exp(-3) and stay between exp(-6) and 1. Sampled actions are
cut to the bounds before critics value them.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from border_cli.agent.actor_critic import critic_action, priority_of, weighted_square
from border_cli.agent.advantage_weighted import AdvantageAgent, CriticLoss
from border_cli.agent.config import AwacConfig
from border_cli.core.spaces import EnvSpec
from border_cli.core.types import Update
from border_cli.nn.tensor_batch import TensorBatch


class Awac(AdvantageAgent):
    """Off-policy critics of the actor's policy; the actor never leaves the data's actions far."""

    name: ClassVar[str] = "awac"

    def __init__(self, config: AwacConfig, *, spec: EnvSpec, device: str, seed: int) -> None:
        self.config = config
        super().__init__(config, spec=spec, device=device, seed=seed)
        self._critic_loss = self.compiled(self.critic_loss)
        self._actor_loss = self.compiled(self.actor_loss)

    def learn(self, batch: TensorBatch) -> Update:
        rows = len(batch.reward)
        found = self._critic_loss(batch, self.action_noise(rows))
        td_error = priority_of(found.error)
        actor_loss, advantage = self._actor_loss(batch, found.q, self.action_noise(rows))
        metrics = {"q_mean": found.q.mean(), "adv_mean": advantage.mean()}
        metrics |= self.descend_actor(actor_loss)
        metrics |= self.descend_critics(found.loss)
        self.follow_critic()
        return Update(metrics=metrics, td_error=td_error)

    def critic_loss(self, batch: TensorBatch, noise: Tensor) -> CriticLoss:
        """The squared TD errors of all critics: y = r + d min_i Q_target_i(s', a'), a' ~ pi."""
        with torch.no_grad():
            next_action = self.actor.sample(self.actor(batch.next_obs), noise)  # [B, A]
            q_next = self.critic_target(batch.next_obs, next_action).amin(dim=0)  # [B, 1]
            y = torch.addcmul(batch.reward, batch.discount, q_next)
        q = self.critic(batch.obs, critic_action(batch, self._spec))  # [E, B, 1]
        error = q - y
        loss = weighted_square(error, batch.weight)
        return CriticLoss(loss, q.detach().amin(dim=0), error.detach())

    def actor_loss(self, batch: TensorBatch, q: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Weighted cloning by A(s, a) = Q(s, a) - Q(s, a'), a' ~ pi, and A. [B, 1] -> [], [B, 1]"""
        outputs = self.actor(batch.obs)
        with torch.no_grad():
            sampled = self.actor.sample(outputs, noise)  # [B, A]
            advantage = q - self.critic(batch.obs, sampled).amin(dim=0)  # [B, 1]
        return self.weighted_cloning(outputs, batch, advantage), advantage
