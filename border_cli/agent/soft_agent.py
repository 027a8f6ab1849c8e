"""What every agent has that maximises entropy beside reward."""

from __future__ import annotations

from abc import abstractmethod
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from border_cli.agent.action_space import bounded_actions
from border_cli.agent.actor_critic import ActorCriticAgent
from border_cli.agent.actor_critic_config import SoftConfig
from border_cli.agent.entropy import EntropyCoefficient
from border_cli.agent.gaussian_policy import GaussianPolicy
from border_cli.agent.quantile import distance
from border_cli.core.interfaces import PolicyFactory
from border_cli.core.spaces import EnvSpec
from border_cli.core.types import Update
from border_cli.nn.distributions import sample, split
from border_cli.nn.features import FeatureTensors
from border_cli.nn.tensor_batch import TensorBatch


class CriticLoss(NamedTuple):
    """What one batch says about the critics."""

    loss: Tensor  # []
    q: Tensor  # [E, B, M]  Q_i(s, a), or M quantiles of it; without a gradient
    target: Tensor  # [B, K]  y, or K quantiles of it
    metrics: dict[str, Tensor]


class ActorLoss(NamedTuple):
    """What one batch says about the actor."""

    loss: Tensor  # []
    log_prob: Tensor  # [B, 1]  of the actions that it would take


def regret(value: Tensor, log_prob: Tensor, ent_coef: Tensor, weight: Tensor) -> ActorLoss:
    """alpha log pi(a|s) - Q(s, a), at actions of the actor's own. [B, 1], [B, 1], [], [B, 1]

    Haarnoja et al. 2018, "Soft actor-critic algorithms and applications", equation 9.
    """
    loss = (weight * (ent_coef * log_prob - value)).mean()
    return ActorLoss(loss, log_prob.detach())


class SoftAgent(ActorCriticAgent):
    """A Gaussian actor, critics, and the weight of entropy; the learner's thread calls it.

    A subclass says what the critics learn and what the actor climbs.
    """

    def __init__(
        self, config: SoftConfig, *, spec: EnvSpec, device: str, seed: int, **critics: Any
    ) -> None:
        """`critics` are the arguments of `ActorCriticAgent` that say how critics look."""
        self._action_bounds = bounded_actions(spec, self.name)
        size = self._action_bounds.size
        super().__init__(
            config, spec=spec, device=device, seed=seed, actor_outputs=2 * size, **critics
        )
        self._soft_settings = config
        self.ent_coef = EntropyCoefficient(config, size, self.device)
        self.keeps(ent_coef=self.ent_coef, ent_coef_optimizer=self.ent_coef.optimizer)
        self._critic_loss = self.compiled(self.critic_loss)
        self._actor_loss = self.compiled(self.actor_loss)

    @property
    def policy_factory(self) -> PolicyFactory:
        return partial(
            GaussianPolicy,
            architecture=self.architecture,
            bounds=self._action_bounds,
            agent=self.name,
        )

    @property
    def different_updates(self) -> int:
        return self._soft_settings.policy_delay

    def draws(self, batch: TensorBatch) -> Any:
        """The random numbers of one `critic_loss`: noise of the next actions. [B, A]"""
        return self.normal(*batch.action.shape)

    @abstractmethod
    def critic_loss(self, batch: TensorBatch, draws: Any, ent_coef: Tensor) -> CriticLoss:
        """What the critics descend; draws nothing itself, so that it can be compiled."""

    @abstractmethod
    def climbed(self, features: FeatureTensors, action: Tensor) -> Tensor:
        """The value of actions as the actor sees it, by `critic_fixed`. [B, 1]"""

    def actor_draws(self, batch: TensorBatch) -> Any:
        """The random numbers of one `actor_loss`: noise of the actions. [B, A]"""
        return self.normal(*batch.action.shape)

    def actor_loss(self, batch: TensorBatch, draws: Any, ent_coef: Tensor) -> ActorLoss:
        """What the actor descends."""
        action, log_prob = self.sampled(batch.obs, draws)
        return regret(self.climbed(batch.obs, action), log_prob, ent_coef, batch.weight)

    def sampled(self, features: FeatureTensors, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Actions between -1 and 1 and their log-density. [B, A], [B, 1]"""
        return sample(*split(self.actor(features)), noise)

    def learn(self, batch: TensorBatch) -> Update:
        settings = self._soft_settings
        if settings.reward_scale != 1:
            batch = batch._replace(reward=settings.reward_scale * batch.reward)
        with torch.no_grad():
            ent_coef = self.ent_coef()
        found = self._critic_loss(batch, self.draws(batch), ent_coef)
        metrics = {**found.metrics, "ent_coef": ent_coef, **self.descend_critics(found.loss)}
        if self.opt_steps % settings.policy_delay == 0:
            metrics |= self._improve(batch, ent_coef)
        self.follow_critic()
        q, target = found.q, found.target  # what else was found need not live as long
        return Update(
            metrics=metrics, td_error=lambda: distance(q, target).mean(dim=0).cpu().numpy()
        )

    def _improve(self, batch: TensorBatch, ent_coef: Tensor) -> dict[str, Tensor]:
        """The actor climbs, and the weight of entropy follows."""
        found = self._actor_loss(batch, self.actor_draws(batch), ent_coef)
        metrics = {"entropy": -found.log_prob.mean(), **self.descend_actor(found.loss)}
        self.ent_coef.follow(found.log_prob, batch.weight)
        return metrics
