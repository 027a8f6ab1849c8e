"""Implicit Q-learning.

Kostrikov, Nair and Levine 2022, "Offline reinforcement learning with implicit Q-learning",
Algorithm 1 and equations 5 to 7. V is an expectile of Q over the actions in the data, so actions
outside the data are never evaluated. There are `num_critics` critics; targets use their minimum.
Deviations from the authors' code: rewards are not transformed. The code multiplies MuJoCo rewards
by 1,000 / (best - worst return of an episode), which is equivalent to multiplying `inv_lambda`, and
subtracts 1 from AntMaze rewards. The actor's weights use V before its update, and in the code after
it; the critics use V after its update in both. The actor's learning rate is constant
instead of a cosine schedule over the run. Weights are initialised as in torch.nn.Linear instead of
orthogonally. The squared error of the critics is halved, which does not affect Adam's steps.
"""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from border_cli.agent.awac import CloningAgent, weighted_cloning
from border_cli.agent.config import IqlConfig
from border_cli.agent.critics import CriticLoss, mean_abs_error, squared_loss
from border_cli.agent.learning_agent import gradient_step
from border_cli.core.spaces import EnvSpec
from border_cli.core.types import Update
from border_cli.nn.arrays import mask_invalid
from border_cli.nn.batch import TensorBatch
from border_cli.nn.network import Network


class ValueLoss(NamedTuple):
    """The loss of V on one batch."""

    loss: Tensor  # []
    advantage: Tensor  # [B, 1]  min_i Q_target_i(s, a) - V(s)


def expectile_loss(error: Tensor, expectile: float) -> Tensor:
    """Returns |tau - 1(u < 0)| u^2 for each row, equation 4. [B, 1] -> [B, 1]"""
    return (expectile - (error < 0).to(error.dtype)).abs() * error.square()


class Iql(CloningAgent):
    """Implicit Q-learning. Owns V in addition to actor and critics."""

    name: ClassVar[str] = "iql"
    config: IqlConfig

    def __init__(self, config: IqlConfig, *, spec: EnvSpec, device: str, seed: int) -> None:
        super().__init__(config, spec=spec, device=device, seed=seed)
        architecture = replace(self.architecture, hidden=config.critic_sizes)
        self.value = Network(architecture, 1, self.init_generator).to(self.device)
        self.value_optimizer = self.make_optimizer(
            self.value, config.value_learning_rate or config.learning_rate, config.max_grad_norm
        )
        self.register_state(value=self.value, value_optimizer=self.value_optimizer)
        self._value_loss = self.backend.compile(self.value_loss)
        self._actor_loss = self.backend.compile(self.actor_loss)
        self._critic_loss = self.backend.compile(self.critic_loss)

    def learn(self, batch: TensorBatch) -> Update:
        """Updates V, then the actor, then the critics and their targets (Algorithm 1)."""
        action = self.critic_action(batch)
        value = self._value_loss(batch, action)
        metrics = gradient_step(self.value_optimizer, value.loss, "loss_value", "grad_norm_value")
        metrics |= self.update_actor(self._actor_loss(batch, value.advantage))
        critic = self._critic_loss(batch, action)
        metrics |= {**critic.metrics, "adv_mean": value.advantage.mean()}
        metrics |= self.critics.update(critic.loss)
        self.critics.update_target()
        return Update(metrics=metrics, td_error=mean_abs_error(critic.q, critic.target))

    def value_loss(self, batch: TensorBatch, action: Tensor) -> ValueLoss:
        """Returns the loss that makes V(s) an expectile of Q_target(s, a), equation 5."""
        with torch.no_grad():
            q = self.critics.target(batch.obs, action).amin(dim=0)  # [B, 1]
        error = q - self.value(batch.obs)
        loss = (batch.weight * expectile_loss(error, self.config.expectile)).mean()
        return ValueLoss(loss, error.detach())

    def actor_loss(self, batch: TensorBatch, advantage: Tensor) -> Tensor:
        """Returns the loss of advantage-weighted cloning, equation 7. [B, 1] -> []"""
        outputs = mask_invalid(self.actor(batch.obs), batch.mask)
        return weighted_cloning(self.actor, outputs, batch, advantage, self.config)

    def critic_loss(self, batch: TensorBatch, action: Tensor) -> CriticLoss:
        """Returns the TD loss for y = r + d V(s'), where d is 0 if s' is terminal, equation 6."""
        with torch.no_grad():
            y = torch.addcmul(batch.reward, batch.discount, self.value(batch.next_obs))  # [B, 1]
        q = self.critics.online(batch.obs, action)  # [E, B, 1]
        loss = squared_loss(q - y, batch.weight)
        return CriticLoss(loss, q.detach(), y, {"q_mean": q.detach().amin(dim=0).mean()})
