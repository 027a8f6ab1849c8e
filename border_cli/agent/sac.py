"""Soft actor-critic (SAC), with REDQ and DroQ as presets.

Haarnoja et al. 2018, "Soft actor-critic: off-policy maximum entropy deep reinforcement learning
with a stochastic actor"; in the version without a V network and with a learned entropy coefficient,
"Soft actor-critic algorithms and applications", Algorithm 1.
REDQ (conf/agent/redq.yaml): Chen et al. 2021, "Randomized ensembled double Q-learning: learning
fast without a model", Algorithm 1. DroQ (conf/agent/droq.yaml): Hiraoka et al. 2022, "Dropout
Q-functions for doubly efficient reinforcement learning", Algorithm 2.
Deviation from SAC: importance weights of prioritized replay scale all three losses.
Deviations from REDQ and DroQ: the target entropy is minus the number of action dimensions, as in
SAC; both papers' authors set it per environment (`target_entropy`: Hopper -1, Walker2d and
HalfCheetah -3, Ant -4, Humanoid -2). Weights are initialised as in torch.nn.Linear; the authors use
Xavier uniform weights and zero biases. The squared error is halved, as in SAC, which does not
affect Adam's steps. The actor's loss uses the updated critics, as in Algorithm 1 of SAC; the code
of REDQ uses the previous ones. DroQ's `dropout` is 0.01 for every environment, as in one of its
authors' two codes; the other has 0.0001 for Hopper, 0.005 for Walker2d and 0.1 for Humanoid.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from border_cli.agent.action_space import bounded_actions
from border_cli.agent.config import ActorCritics, SacConfig, SoftConfig
from border_cli.agent.continuous_policies import GaussianPolicy
from border_cli.agent.critics import (
    CRITIC_TARGETS,
    CriticLoss,
    LearnedCritics,
    mean_abs_error,
    squared_loss,
)
from border_cli.agent.learning_agent import LearningAgent, gradient_step
from border_cli.agent.saved_state import OptionalPart
from border_cli.core.interfaces import PolicyFactory
from border_cli.core.spaces import EnvSpec
from border_cli.core.types import Update
from border_cli.nn.batch import TensorBatch
from border_cli.nn.distributions import sample, split
from border_cli.nn.features import FeatureTensors
from border_cli.nn.network import Network
from border_cli.nn.optimizer import Adam
from border_cli.settings.schedule import schedule_of


def scale_rewards(batch: TensorBatch, factor: float) -> TensorBatch:
    """Returns the batch with its rewards multiplied by `factor`."""
    return batch if factor == 1 else batch._replace(reward=factor * batch.reward)


def soft_target(batch: TensorBatch, q_next: Tensor, log_prob: Tensor, ent_coef: Tensor) -> Tensor:
    """Returns y = r + d (min_i Q_target_i(s', a') - alpha log pi(a'|s')).

    d is 0 if s' is terminal. [E, B, 1], [B, 1], [] -> [B, 1]
    """
    value = q_next.amin(dim=0) - ent_coef * log_prob
    return torch.addcmul(batch.reward, batch.discount, value)


class ActorLoss(NamedTuple):
    """The loss of the actor on one batch."""

    loss: Tensor  # []
    log_prob: Tensor  # [B, 1]  log-probability of the actor's actions


def policy_loss(value: Tensor, log_prob: Tensor, ent_coef: Tensor, weight: Tensor) -> ActorLoss:
    """Returns the mean of alpha log pi(a|s) - Q(s, a), a ~ pi. [B, 1], [B, 1], [], [B, 1]

    Haarnoja et al. 2018, "Soft actor-critic algorithms and applications", equation 9.
    """
    loss = (weight * (ent_coef * log_prob - value)).mean()
    return ActorLoss(loss, log_prob.detach())


class Coefficient(OptionalPart, nn.Module):
    """A non-negative coefficient, fixed or learned, stored as its logarithm.

    A learned coefficient c descends the loss log c * excess instead of c * excess, so that small
    coefficients grow as fast as large ones. Only a learned coefficient is saved in checkpoints.
    """

    log: Tensor  # []

    def __init__(
        self,
        initial: float,
        *,
        learned: bool,
        learning_rate: float | Mapping[str, Any],
        device: torch.device,
    ) -> None:
        super().__init__()
        self.learned = learned
        log = math.log(initial) if initial > 0 else -math.inf
        self.register_buffer("log", torch.tensor(log), persistent=learned)
        self.to(device)
        self.optimizer = Adam([self.log], learning_rate=schedule_of(learning_rate))

    def forward(self) -> Tensor:
        """Returns the coefficient, which is 0 only if the settings fix it at 0. []"""
        return self.log.exp()


class EntropyCoefficient(Coefficient):
    """The entropy coefficient alpha, fixed or learned to keep the entropy at its target.

    Haarnoja et al. 2018, "Soft actor-critic algorithms and applications", Section 5. Deviation:
    the loss has log alpha instead of alpha as a factor, as in the authors' code (see
    `Coefficient`).
    """

    setting: ClassVar[str] = "agent.ent_coef"

    def __init__(self, config: SoftConfig, target_entropy: float, device: torch.device) -> None:
        """`target_entropy` is in nats, and overridden by `config.target_entropy`."""
        super().__init__(
            config.ent_coef_init if config.ent_coef is None else config.ent_coef,
            learned=config.ent_coef is None,
            learning_rate=config.ent_coef_learning_rate or config.learning_rate,
            device=device,
        )
        target = config.target_entropy
        self.target = target_entropy if target is None else target

    def step(self, log_prob: Tensor, weight: Tensor, target: float | Tensor) -> None:
        """Performs a gradient step; alpha grows if the entropy is below the target. [B, 1] each"""
        if self.learned:
            shortfall = (weight * (log_prob + target)).mean()
            self.optimizer.step((-shortfall,))


class Sizes(NamedTuple):
    """Sizes of the networks, and the default target entropy, for an action space."""

    actor_outputs: int
    action: int  # size of the critics' action input
    critic_outputs: int
    target_entropy: float  # in nats


class SoftActorCritic(LearningAgent):
    """Base of agents with a stochastic actor, critics and an entropy coefficient. The actor is a
    squashed Gaussian for Box actions, unless a subclass has another.

    Subclasses define the losses, which receive random numbers as arguments, so that torch can
    compile them. Called by the learner thread only.
    """

    targets: ClassVar[Mapping[str, str]] = CRITIC_TARGETS
    td_error = staticmethod(mean_abs_error)
    config: SoftConfig

    def __init__(
        self,
        config: SoftConfig,
        *,
        spec: EnvSpec,
        device: str,
        seed: int,
        dropout: float = 0.0,
    ) -> None:
        """`dropout`: probability in the hidden layers of the critics."""
        super().__init__(config, spec=spec, device=device, seed=seed)
        sizes = self.sizes()
        self.actor = Network(self.architecture, sizes.actor_outputs, self.init_generator).to(
            self.device
        )
        self.actor_optimizer = self.make_optimizer(
            self.actor, config.learning_rate, config.max_grad_norm
        )
        self.critics = LearnedCritics(
            config,
            agent=self,
            action_size=sizes.action,
            outputs=sizes.critic_outputs,
            dropout=dropout,
        )
        self.ent_coef = EntropyCoefficient(config, sizes.target_entropy, self.device)
        self.register_state(
            actor=self.actor,
            actor_optimizer=self.actor_optimizer,
            **self.critics.parts,
            ent_coef=self.ent_coef,
            ent_coef_optimizer=self.ent_coef.optimizer,
        )
        self.acting_parts["network"] = self.actor
        self._critic_loss = self.backend.compile(self.critic_loss)
        self._actor_loss = self.backend.compile(self.actor_loss)

    def learn(self, batch: TensorBatch) -> Update:
        """Updates critics, then actor and coefficient every `policy_delay` calls, then targets."""
        batch = scale_rewards(batch, self.config.reward_scale)
        ent_coef = self.ent_coef()
        critic = self._critic_loss(batch, self.draw_critic_noise(batch), ent_coef)
        metrics = {**critic.metrics, "ent_coef": ent_coef}
        metrics |= self.critics.update(critic.loss)
        if self.opt_steps % self.config.policy_delay == 0:
            actor = self._actor_loss(batch, self.draw_actor_noise(batch), ent_coef)
            metrics["entropy"] = -actor.log_prob.mean()
            metrics |= gradient_step(
                self.actor_optimizer, actor.loss, "loss_actor", "grad_norm_actor"
            )
            self.ent_coef.step(actor.log_prob, batch.weight, self.target_entropy(batch.mask))
        self.critics.update_target()
        return Update(metrics=metrics, td_error=self.td_error(critic.q, critic.target))

    @abstractmethod
    def critic_loss(self, batch: TensorBatch, noise: Any, ent_coef: Tensor) -> CriticLoss:
        """Returns the loss of all critics."""

    @abstractmethod
    def actor_loss(self, batch: TensorBatch, noise: Any, ent_coef: Tensor) -> ActorLoss:
        """Returns the loss of the actor."""

    def sizes(self) -> Sizes:
        """Returns the sizes for the action space; raises ConfigError unless it is a bounded Box."""
        size = bounded_actions(self.spec, self.name).size
        return Sizes(2 * size, size, 1, -float(size))

    def draw_critic_noise(self, batch: TensorBatch) -> Any:
        """Draws the random numbers of `critic_loss`; here those of the next actions. [B, A]"""
        return self.backend.normal(*batch.action.shape)

    def draw_actor_noise(self, batch: TensorBatch) -> Any:
        """Draws the random numbers of `actor_loss`; here those of the actions. [B, A]"""
        return self.backend.normal(*batch.action.shape)

    def target_entropy(self, mask: Tensor | None) -> float | Tensor:  # noqa: ARG002 - for subclasses
        """Returns the target entropy in nats, for actions with this mask."""
        return self.ent_coef.target

    def sample_action(self, features: FeatureTensors, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Samples actions in [-1, 1] and returns them with their log-densities. [B, A], [B, 1]"""
        return sample(*split(self.actor(features)), noise)

    @property
    def policy_factory(self) -> PolicyFactory:
        bounds = bounded_actions(self.spec, self.name)
        return partial(GaussianPolicy, network=self.acting_network(), bounds=bounds)

    @property
    def update_period(self) -> int:
        return self.config.policy_delay


class CriticNoise(NamedTuple):
    """The random numbers for one call of `Sac.critic_loss`."""

    normal: Tensor  # [B, A] standard normal noise of the next actions
    members: Tensor | None  # [K] indices of the critics used in the target; None means all
    target_dropout: list[Tensor] | None  # dropout masks of the target critics
    dropout: list[Tensor] | None  # dropout masks of the critics


class ActorNoise(NamedTuple):
    """The random numbers for one call of `Sac.actor_loss`."""

    normal: Tensor  # [B, A] standard normal noise of the actions
    dropout: list[Tensor] | None  # dropout masks of the critics


class Sac(SoftActorCritic):
    """Soft actor-critic with any number of critics. Called by the learner thread only."""

    name: ClassVar[str] = "sac"
    config: SacConfig

    def __init__(self, config: SacConfig, *, spec: EnvSpec, device: str, seed: int) -> None:
        super().__init__(config, spec=spec, device=device, seed=seed, dropout=config.dropout)

    def critic_loss(self, batch: TensorBatch, noise: CriticNoise, ent_coef: Tensor) -> CriticLoss:
        """Returns the squared TD errors of all critics."""
        with torch.no_grad():
            action, log_prob = self.sample_action(batch.next_obs, noise.normal)
            q_next = self.critics.target(
                batch.next_obs, action, noise.target_dropout, noise.members
            )  # [K, B, 1]
            y = soft_target(batch, q_next, log_prob, ent_coef)  # [B, 1]
        q = self.critics.online(batch.obs, batch.action, noise.dropout)  # [E, B, 1]
        loss = squared_loss(q - y, batch.weight)
        return CriticLoss(loss, q.detach(), y, {"q_mean": q.detach().mean()})

    def actor_loss(self, batch: TensorBatch, noise: ActorNoise, ent_coef: Tensor) -> ActorLoss:
        """Returns the actor loss, with the minimum or the mean over all critics as Q."""
        action, log_prob = self.sample_action(batch.obs, noise.normal)
        q = self.critics.frozen(batch.obs, action, noise.dropout)  # [E, B, 1]
        use_min = self.config.actor_critics == ActorCritics.min
        value = q.amin(dim=0) if use_min else q.mean(dim=0)
        return policy_loss(value, log_prob, ent_coef, batch.weight)

    def draw_critic_noise(self, batch: TensorBatch) -> CriticNoise:
        """Draws action noise, the critics used in the target, and dropout masks."""
        dropout = self._draw_dropout(batch), self._draw_dropout(batch)
        return CriticNoise(self.backend.normal(*batch.action.shape), self._draw_subset(), *dropout)

    def draw_actor_noise(self, batch: TensorBatch) -> ActorNoise:
        """Draws action noise and dropout masks."""
        return ActorNoise(self.backend.normal(*batch.action.shape), self._draw_dropout(batch))

    def _draw_subset(self) -> Tensor | None:
        """Draws `subset` distinct critics, or returns None for all of them. [K]"""
        if self.config.subset in (None, self.config.num_critics):
            return None
        order = torch.randperm(self.config.num_critics, generator=self.backend.noise)
        return order[: self.config.subset].to(self.device)

    def _draw_dropout(self, batch: TensorBatch) -> list[Tensor] | None:
        if not self.config.dropout:
            return None
        masks = self.critics.online.mlp.dropout_masks(len(batch.action), self.backend.noise)
        return [mask.to(self.device) for mask in masks]
