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
from border_cli.agent.torch_agent import TorchAgent, gradient_step
from border_cli.core.interfaces import PolicyFactory
from border_cli.core.spaces import EnvSpec
from border_cli.core.types import Update
from border_cli.nn.choices import Choices
from border_cli.nn.distributions import CategoricalNetwork, GaussianNetwork, StochasticNetwork
from border_cli.nn.tensor_batch import TensorBatch, masked


def advantage_weights(
    advantage: Tensor, *, inv_lambda: float, exp_adv_max: float, softmax: bool
) -> Tensor:
    """exp(A / lambda), at most `exp_adv_max`; or B times its share of the batch. [B, 1] -> [B, 1]

    The shares of a batch add up to 1, so the mean of B times them is what they weigh.
    """
    scaled = inv_lambda * advantage
    if softmax:
        return len(scaled) * torch.softmax(scaled, dim=0)
    return scaled.exp().clamp(max=exp_adv_max)


def cloning_loss(log_prob: Tensor, advantage_weight: Tensor, weight: Tensor) -> Tensor:
    """-E[w log pi(a|s)], with the importance weights of sampling. [B, 1] each -> []"""
    return -(weight * advantage_weight * log_prob).mean()


def weighted_cloning(
    actor: StochasticNetwork,
    outputs: Tensor,
    batch: TensorBatch,
    advantage: Tensor,
    config: AwacConfig,
) -> Tensor:
    """The loss of the actor, given its outputs for the batch. [B, outputs], [B, 1] -> []"""
    weights = advantage_weights(
        advantage,
        inv_lambda=config.inv_lambda,
        exp_adv_max=config.exp_adv_max,
        softmax=config.adv_softmax,
    )
    return cloning_loss(actor.log_prob(outputs, batch.action), weights, batch.weight)


class CloningAgent(TorchAgent):
    """An actor that clones the better actions in the data, and critics. The learner's thread calls
    it."""

    targets: ClassVar[Mapping[str, str]] = CRITIC_TARGETS
    config: AwacConfig
    actor: StochasticNetwork

    def __init__(self, config: AwacConfig, *, spec: EnvSpec, device: str, seed: int) -> None:
        self._action_size = size = action_outputs(spec, self.name)
        super().__init__(config, spec=spec, device=device, seed=seed)
        nvec, form = components_of(spec.action), (self.architecture, size, self.init_generator)
        self.choices = None if nvec is None else Choices(nvec, self.device)  # None of a Box
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
        self.acting_modules["network"] = self.actor

    def update_actor(self, loss: Tensor) -> dict[str, Tensor]:
        """One gradient step of the actor; returns its metrics."""
        metrics = gradient_step(self.actor_optimizer, loss, "loss_actor", "grad_norm_actor")
        self.actor.clamp_parameters()
        return metrics

    def critic_action(self, batch: TensorBatch) -> Tensor:
        """The actions of a batch as critics take them: one-hot, or of a Box. [B, action_size]"""
        return batch.action if self.choices is None else self.choices.one_hot(batch.action)

    @property
    def policy_factory(self) -> PolicyFactory:
        return stochastic_policy(self.spec, self.acting_network())


class Awac(CloningAgent):
    """Off-policy critics of the actor's policy; the actor never leaves the data's actions far."""

    name: ClassVar[str] = "awac"

    def __init__(self, config: AwacConfig, *, spec: EnvSpec, device: str, seed: int) -> None:
        super().__init__(config, spec=spec, device=device, seed=seed)
        self._critic_loss = self.compiled(self.critic_loss)
        self._actor_loss = self.compiled(self.actor_loss)

    def learn(self, batch: TensorBatch) -> Update:
        """Algorithm 1: critics and actor, both on the weights from before the update."""
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
        """The squared TD errors of all critics: y = r + d min_i Q_target_i(s', a'), a' ~ pi."""
        with torch.no_grad():
            outputs = masked(self.actor(batch.next_obs), batch.next_mask)
            next_action = self.actor.sample(outputs, noise)  # [B, A]
            q_next = self.critics.target(batch.next_obs, next_action).amin(dim=0)  # [B, 1]
            y = torch.addcmul(batch.reward, batch.discount, q_next)
        q = self.critics.online(batch.obs, self.critic_action(batch))  # [E, B, 1]
        return CriticLoss(squared_loss(q - y, batch.weight), q.detach(), y, {})

    def actor_loss(self, batch: TensorBatch, q: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Weighted cloning by A(s, a) = Q(s, a) - Q(s, a'), a' ~ pi, and A. [B, 1] -> [], [B, 1]"""
        outputs = masked(self.actor(batch.obs), batch.mask)
        with torch.no_grad():
            sampled = self.actor.sample(outputs, noise)  # [B, A]
            advantage = q - self.critics.online(batch.obs, sampled).amin(dim=0)  # [B, 1]
        return weighted_cloning(self.actor, outputs, batch, advantage, self.config), advantage

    def draw_action_noise(self, rows: int) -> Tensor:
        """Draws the random numbers of one `actor.sample`. [B, A]"""
        draw = self.normal if self.choices is None else self.uniform
        return draw(rows, self._action_size)
