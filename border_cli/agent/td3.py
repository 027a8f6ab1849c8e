"""Twin delayed deep deterministic policy gradient (TD3), with DDPG as a preset.

Fujimoto, van Hoof and Meger 2018, "Addressing function approximation error in actor-critic
methods", Algorithm 1. DDPG (conf/agent/ddpg.yaml): Lillicrap et al. 2016, "Continuous control with
deep reinforcement learning", Algorithm 1, with one critic, no delay and no noise on target actions.
Deviations: the squared error is halved, which does not affect Adam's steps. The defaults are those
of the authors' later code; the TD3 paper has `hidden` [400, 300], `learning_rate` 1e-3 and
`batch_size` 100. Unlike in the DDPG paper, the action enters the critic at its first layer, and
there is no batch normalisation and no weight decay.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import ClassVar

import torch
from torch import Tensor

from border_cli.agent.action_space import bounded_actions
from border_cli.agent.config import Td3Config
from border_cli.agent.continuous_policies import DeterministicPolicy
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
from border_cli.nn.batch import TensorBatch
from border_cli.nn.features import FeatureTensors
from border_cli.nn.network import Network, polyak_update, target_of
from border_cli.settings.schedule import schedule_of


def smooth_action(action: Tensor, noise: Tensor, *, std: float, clip: float) -> Tensor:
    """Returns clip(a + clip(std * noise, -c, c), -1, 1), to smooth Q over nearby actions. [B, A]"""
    return (action + (std * noise).clamp(-clip, clip)).clamp(-1, 1)


def td_target(batch: TensorBatch, q_next: Tensor) -> Tensor:
    """Returns y = r + d min_i Q_target_i(s', a'); d is 0 if s' is terminal. [E, B, 1] -> [B, 1]"""
    return torch.addcmul(batch.reward, batch.discount, q_next.amin(dim=0))


def select_action(actor: Network, features: FeatureTensors) -> Tensor:
    """Returns pi(s), which is tanh of the actor's outputs. [B, A]"""
    return torch.tanh(actor(features))


class Td3(LearningAgent):
    """A deterministic actor and critics, with targets for both. Called by the learner thread."""

    name: ClassVar[str] = "td3"
    targets: ClassVar[Mapping[str, str]] = {**CRITIC_TARGETS, "actor_target": "actor"}
    config: Td3Config

    def __init__(self, config: Td3Config, *, spec: EnvSpec, device: str, seed: int) -> None:
        self._action_bounds = bounded_actions(spec, self.name)
        super().__init__(config, spec=spec, device=device, seed=seed)
        size, bound = self._action_bounds.size, config.final_bound
        self.actor = Network(self.architecture, size, self.init_generator, final_bound=bound)
        self.actor.to(self.device)
        self.actor_target = target_of(self.actor)
        self.actor_optimizer = self.make_optimizer(
            self.actor, config.learning_rate, config.max_grad_norm
        )
        self.critics = LearnedCritics(config, agent=self, action_size=size, final_bound=bound)
        self.first_critic = self.critics.online.first_critic()
        self.register_state(
            actor=self.actor,
            actor_target=self.actor_target,
            actor_optimizer=self.actor_optimizer,
            **self.critics.parts,
        )
        self.acting_parts["network"] = self.actor
        self._actor_pair = list(self.actor_target.parameters()), list(self.actor.parameters())
        self._critic_loss = self.backend.compile(self.critic_loss)
        self._actor_loss = self.backend.compile(self.actor_loss)

    def learn(self, batch: TensorBatch) -> Update:
        """Updates the critics, and every `policy_delay` calls the actor and all targets."""
        noise = self.backend.normal(*batch.action.shape) if self.config.target_noise else None
        critic = self._critic_loss(batch, noise)
        metrics = critic.metrics | self.critics.update(critic.loss)
        if self.opt_steps % self.config.policy_delay == 0:
            loss = self._actor_loss(batch)
            metrics |= gradient_step(self.actor_optimizer, loss, "loss_actor", "grad_norm_actor")
            self.critics.update_target()
            polyak_update(*self._actor_pair, self.config.tau)
        return Update(metrics=metrics, td_error=mean_abs_error(critic.q, critic.target))

    def critic_loss(self, batch: TensorBatch, noise: Tensor | None) -> CriticLoss:
        """Returns the squared TD errors of all critics. `noise` is standard normal. [B, A]"""
        with torch.no_grad():
            next_action = select_action(self.actor_target, batch.next_obs)
            if noise is not None:
                config = self.config
                next_action = smooth_action(
                    next_action, noise, std=config.target_noise, clip=config.target_noise_clip
                )
            y = td_target(batch, self.critics.target(batch.next_obs, next_action))  # [B, 1]
        q = self.critics.online(batch.obs, batch.action)  # [E, B, 1]
        loss = squared_loss(q - y, batch.weight)
        return CriticLoss(loss, q.detach(), y, {"q_mean": q.detach().mean()})

    def actor_loss(self, batch: TensorBatch) -> Tensor:
        """Returns -E[Q_1(s, pi(s))], whose gradient is the deterministic policy gradient. []"""
        q: Tensor = self.first_critic(batch.obs, select_action(self.actor, batch.obs))  # [1, B, 1]
        loss: Tensor = -(batch.weight * q).mean()
        return loss

    @property
    def policy_factory(self) -> PolicyFactory:
        return partial(
            DeterministicPolicy,
            network=self.acting_network(),
            bounds=self._action_bounds,
            noise=self.config.noise,
            noise_std=schedule_of(self.config.noise_std),
        )

    @property
    def update_period(self) -> int:
        return self.config.policy_delay
