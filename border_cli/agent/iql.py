"""Implicit Q-learning.

Kostrikov, Nair and Levine 2022, "Offline reinforcement learning with implicit Q-learning",
Algorithm 1 and equations 5 to 7: V is an expectile of Q over the actions of the data, so no value
of an action outside of them is ever asked for. Critics and their targets number `num_critics`, the
smallest of which counts.
Deviations from the authors' code: rewards stay as they are, where it multiplies those of MuJoCo's
data sets by 1,000 / (best - worst return of an episode) and subtracts 1 from those of AntMaze's.
`inv_lambda` times that factor weighs rows as there. The actor weighs rows by V before its step, and
there after it; critics have V after it in both. Its learning rate is constant, not a cosine over
the length of the run. Weights begin as those of torch.nn.Linear, theirs are orthogonal. Critics
descend half the squared error, which leaves Adam's steps as they are.
"""

from __future__ import annotations

from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from border_cli.agent.actor_critic import critic_action, priority_of, weighted_square
from border_cli.agent.advantage_weighted import AdvantageAgent, CriticLoss
from border_cli.agent.config import IqlConfig
from border_cli.core.spaces import EnvSpec
from border_cli.core.types import Update
from border_cli.nn.network import Network
from border_cli.nn.optimizer import Adam
from border_cli.nn.tensor_batch import TensorBatch


class ValueLoss(NamedTuple):
    """What one batch says about V."""

    loss: Tensor  # []
    advantage: Tensor  # [B, 1]  min_i Q_target_i(s, a) - V(s)


def expectile_loss(error: Tensor, expectile: float) -> Tensor:
    """|tau - 1(u < 0)| u^2 of each row, equation 4. [B, 1] -> [B, 1]"""
    return (expectile - (error < 0).to(error.dtype)).abs() * error.square()


class Iql(AdvantageAgent):
    """Owns, beside what every actor-critic does, V and its optimiser."""

    name: ClassVar[str] = "iql"

    def __init__(self, config: IqlConfig, *, spec: EnvSpec, device: str, seed: int) -> None:
        self.config = config
        super().__init__(config, spec=spec, device=device, seed=seed)
        self.value = Network(self.architecture, 1, self.first_weights).to(self.device)
        self.value_optimizer = Adam(
            self.value.parameters(),
            learning_rate=config.value_learning_rate or config.learning_rate,
            max_grad_norm=config.max_grad_norm,
        )
        self.keeps(value=self.value, value_optimizer=self.value_optimizer)
        self._value_loss = self.compiled(self.value_loss)
        self._actor_loss = self.compiled(self.actor_loss)
        self._critic_loss = self.compiled(self.critic_loss)

    def learn(self, batch: TensorBatch) -> Update:
        action = critic_action(batch, self._spec)
        found = self._value_loss(batch, action)
        metrics = self.descend(self.value_optimizer, found.loss, "loss_value", "grad_norm_value")
        metrics |= self.descend_actor(self._actor_loss(batch, found.advantage))
        critics = self._critic_loss(batch, action)
        metrics |= {"q_mean": critics.q.mean(), "adv_mean": found.advantage.mean()}
        td_error = priority_of(critics.error)
        metrics |= self.descend_critics(critics.loss)
        self.follow_critic()
        return Update(metrics=metrics, td_error=td_error)

    def value_loss(self, batch: TensorBatch, action: Tensor) -> ValueLoss:
        """Equation 5: V(s) becomes an expectile of Q_target(s, a)."""
        with torch.no_grad():
            q = self.critic_target(batch.obs, action).amin(dim=0)  # [B, 1]
        error = q - self.value(batch.obs)
        loss = (batch.weight * expectile_loss(error, self.config.expectile)).mean()
        return ValueLoss(loss, error.detach())

    def critic_loss(self, batch: TensorBatch, action: Tensor) -> CriticLoss:
        """Equation 6: y = r + d V(s'), where d is 0 at the end."""
        with torch.no_grad():
            y = torch.addcmul(batch.reward, batch.discount, self.value(batch.next_obs))  # [B, 1]
        q = self.critic(batch.obs, action)  # [E, B, 1]
        error = q - y
        loss = weighted_square(error, batch.weight)
        return CriticLoss(loss, q.detach().amin(dim=0), error.detach())

    def actor_loss(self, batch: TensorBatch, advantage: Tensor) -> Tensor:
        """Equation 7: clones what did better than V(s). [B, 1] -> []"""
        return self.weighted_cloning(self.actor(batch.obs), batch, advantage)
