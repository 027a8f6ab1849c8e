"""Advantage-weighted actor-critic.

Nair, Dalal, Gupta and Levine 2020, "AWAC: accelerating online reinforcement learning with offline
datasets", Algorithm 1. The critics evaluate the actor's policy (equation 4). The actor clones the
actions in the data, weighted by exp(A / lambda) (equation 13).
As in the authors' code, values are the minimum over the critics, V(s) is Q of one sampled action,
and all losses of an update are computed before any weights change.
Deviations from the authors' code:
- Weights are clipped at `exp_adv_max`; the code divides them by their sum over the batch
  (`adv_softmax`). Neither normalises by Z(s), which was harmful in the paper's experiments.
- `inv_lambda` is 3. The code has 1, and 0.5 for MuJoCo's Ant, HalfCheetah and Walker2d.
- Batches have 256 transitions instead of 1,024. The actor has two layers of 256 (four for MuJoCo in
  the code) and no weight decay (1e-4 in the code).
- The actor's standard deviations start at 1 and stay between exp(-5) and exp(2); in the code they
  start at exp(-3) and stay between exp(-6) and 1. Both have one per action dimension.
- Sampled actions are clipped to the bounds before the critics evaluate them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import Tensor

from border_cli.agent.action_space import action_outputs, components_of
from border_cli.agent.config import AwacConfig
from border_cli.agent.continuous_policies import stochastic_policy
from border_cli.agent.critics import (
    CRITIC_TARGETS,
    CriticLoss,
    LearnedCritics,
    mean_abs_error,
    squared_loss,
)
from border_cli.agent.learning_agent import LearningAgent, gradient_step
from border_cli.core.interfaces import PolicyFactory
from border_cli.core.spaces import EnvSpec
from border_cli.core.types import Update
from border_cli.nn.arrays import mask_invalid
from border_cli.nn.batch import TensorBatch
from border_cli.nn.choices import Choices
from border_cli.nn.distributions import CategoricalNetwork, GaussianNetwork, StochasticNetwork


def advantage_weights(
    advantage: Tensor, *, inv_lambda: float, exp_adv_max: float, softmax: bool
) -> Tensor:
    """Returns exp(A / lambda), clipped at `exp_adv_max`, or B softmax(A / lambda) over the batch.

    The factor B makes the mean of the softmax weights 1. [B, 1] -> [B, 1]
    """
    scaled = inv_lambda * advantage
    if softmax:
        return len(scaled) * torch.softmax(scaled, dim=0)
    return scaled.exp().clamp(max=exp_adv_max)


def cloning_loss(log_prob: Tensor, advantage_weight: Tensor, weight: Tensor) -> Tensor:
    """Returns -E[w log pi(a|s)], with importance sampling weights. [B, 1] each -> []"""
    return -(weight * advantage_weight * log_prob).mean()


def weighted_cloning(
    actor: StochasticNetwork,
    outputs: Tensor,
    batch: TensorBatch,
    advantage: Tensor,
    config: AwacConfig,
) -> Tensor:
    """Returns the loss of the actor from its outputs for the batch. [B, outputs], [B, 1] -> []"""
    weights = advantage_weights(
        advantage,
        inv_lambda=config.inv_lambda,
        exp_adv_max=config.exp_adv_max,
        softmax=config.adv_softmax,
    )
    return cloning_loss(actor.log_prob(outputs, batch.action), weights, batch.weight)


class CloningAgent(LearningAgent):
    """Base of agents whose actor clones the better actions in the data, guided by critics.

    Called by the learner thread only."""

    targets: ClassVar[Mapping[str, str]] = CRITIC_TARGETS
    config: AwacConfig
    actor: StochasticNetwork

    def __init__(self, config: AwacConfig, *, spec: EnvSpec, device: str, seed: int) -> None:
        self._action_size = size = action_outputs(spec, self.name)
        super().__init__(config, spec=spec, device=device, seed=seed)
        nvec, form = components_of(spec.action), (self.architecture, size, self.init_generator)
        self.choices = None if nvec is None else Choices(nvec, self.device)  # None for a Box
        if self.choices is None:
            self.actor = GaussianNetwork(*form)
        else:
            self.actor = CategoricalNetwork(*form, choices=self.choices)
        self.actor.to(self.device)
        self.actor_optimizer = self.make_optimizer(
            self.actor, config.learning_rate, config.max_grad_norm
        )
        self.critics = LearnedCritics(config, agent=self, action_size=size)
        self.register_state(
            actor=self.actor, actor_optimizer=self.actor_optimizer, **self.critics.parts
        )
        self.acting_parts["network"] = self.actor

    def update_actor(self, loss: Tensor) -> dict[str, Tensor]:
        """Performs one gradient step of the actor and returns its metrics."""
        metrics = gradient_step(self.actor_optimizer, loss, "loss_actor", "grad_norm_actor")
        self.actor.clamp_parameters()
        return metrics

    def critic_action(self, batch: TensorBatch) -> Tensor:
        """Returns the actions as critic inputs, one-hot if discrete. [B, action_size]"""
        return batch.action if self.choices is None else self.choices.one_hot(batch.action)

    @property
    def policy_factory(self) -> PolicyFactory:
        return stochastic_policy(self.spec, self.acting_network())


class Awac(CloningAgent):
    """Advantage-weighted actor-critic. The policy stays close to the data."""

    name: ClassVar[str] = "awac"

    def __init__(self, config: AwacConfig, *, spec: EnvSpec, device: str, seed: int) -> None:
        super().__init__(config, spec=spec, device=device, seed=seed)
        self._critic_loss = self.backend.compile(self.critic_loss)
        self._actor_loss = self.backend.compile(self.actor_loss)

    def learn(self, batch: TensorBatch) -> Update:
        """Updates critics and actor (Algorithm 1) with losses computed before either changes."""
        critic = self._critic_loss(batch, self.draw_action_noise(len(batch.reward)))
        q = critic.q.amin(dim=0)  # [B, 1]
        noise = self.draw_action_noise(len(batch.reward))
        actor_loss, advantage = self._actor_loss(batch, q, noise)
        metrics = {"q_mean": q.mean(), "adv_mean": advantage.mean()}
        metrics |= self.update_actor(actor_loss)
        metrics |= self.critics.update(critic.loss)
        self.critics.update_target()
        return Update(metrics=metrics, td_error=mean_abs_error(critic.q, critic.target))

    def critic_loss(self, batch: TensorBatch, noise: Tensor) -> CriticLoss:
        """Returns the squared TD errors for y = r + d min_i Q_target_i(s', a'), a' ~ pi."""
        with torch.no_grad():
            outputs = mask_invalid(self.actor(batch.next_obs), batch.next_mask)
            next_action = self.actor.sample(outputs, noise)  # [B, A]
            q_next = self.critics.target(batch.next_obs, next_action).amin(dim=0)  # [B, 1]
            y = torch.addcmul(batch.reward, batch.discount, q_next)
        q = self.critics.online(batch.obs, self.critic_action(batch))  # [E, B, 1]
        return CriticLoss(squared_loss(q - y, batch.weight), q.detach(), y, {})

    def actor_loss(self, batch: TensorBatch, q: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the actor loss and A(s, a) = Q(s, a) - Q(s, a'), a' ~ pi. [B, 1] -> [], [B, 1]"""
        outputs = mask_invalid(self.actor(batch.obs), batch.mask)
        with torch.no_grad():
            sampled = self.actor.sample(outputs, noise)  # [B, A]
            advantage = q - self.critics.online(batch.obs, sampled).amin(dim=0)  # [B, 1]
        return weighted_cloning(self.actor, outputs, batch, advantage, self.config), advantage

    def draw_action_noise(self, rows: int) -> Tensor:
        """Draws the random numbers for one call of `actor.sample`. [B, A]"""
        draw = self.backend.normal if self.choices is None else self.backend.uniform
        noise: Tensor = draw(rows, self._action_size)
        return noise
