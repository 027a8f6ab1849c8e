"""Conservative Q-learning for continuous actions; Discrete ones have its term in DQN.

Kumar, Zhou, Tucker and Levine 2020, "Conservative Q-learning for offline reinforcement learning",
CQL(H), equation 4, on soft actor-critic; Appendix F: the integral over actions by importance
sampling, and a learned weight (`conservative_gap`, Lagrange). As in the authors' code, a third of
the actions is the actor's in s', valued in s, and targets leave out the entropy of s'.
Deviations from the authors' code: the square of the TD error is halved, as in equation 4 and not in
the code, so that a `conservative_weight` counts twice as much as there. 2.5 is their 5: then the
whole loss is half of theirs, which leaves Adam's steps as they are. Networks have two layers of 256
instead of three. The estimate is a mean over actions, so that it is the integral and not 3 N times
it (N is `sampled_actions`): the gap is smaller by log(3 N), 3.4 for 10, and by so much a
`conservative_gap` is below their threshold. A learned weight begins at `conservative_weight`,
theirs at 1, and its gradient is that of its logarithm without the factor of the weight
(`sac.Coefficient`). The actor does not begin with cloning, and is updated after the critics, there
before them.
"""

from __future__ import annotations

import math
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from border_cli.agent.config import CqlConfig
from border_cli.agent.critics import CriticLoss, mean_abs_error, squared_loss
from border_cli.agent.sac import (
    ActorLoss,
    Coefficient,
    SoftActorCritic,
    policy_loss,
    scale_rewards,
    soft_target,
)
from border_cli.core.spaces import EnvSpec
from border_cli.core.types import Update
from border_cli.nn.features import FeatureTensors
from border_cli.nn.tensor_batch import TensorBatch

LARGEST_LOG_WEIGHT = math.log(1e6)  # of a learned weight, as in the authors' code


class ConservativeNoise(NamedTuple):
    """The random numbers of one `Cql.critic_loss`; N actions of each kind for each row."""

    next_action: Tensor  # [B, A] normal, of the target
    uniform: Tensor  # [N, B, A] between 0 and 1
    here: Tensor  # [N B, A] normal, of the actor in s
    there: Tensor  # [N B, A] normal, of the actor in s'


def soft_maximum(q: Tensor, log_density: Tensor) -> Tensor:
    """log of the integral of exp Q(s, a) over a, from actions of these densities.

    q: [E, N, B, 1], log_density: [N, B, 1] -> [E, B, 1]
    """
    return torch.logsumexp(q - log_density, dim=1) - math.log(q.shape[1])


def conservative_gaps(soft_maxima: Tensor, q: Tensor, weight: Tensor) -> Tensor:
    """How far any action stands above those of the data, for each critic.

    [E, B, 1], [E, B, 1], [B, 1] -> [E]
    """
    return (weight * (soft_maxima - q)).mean(dim=(1, 2))


class ConservativeWeight(Coefficient):
    """The weight of the gaps, fixed or learned so that they keep to their target."""

    setting: ClassVar[str] = "agent.conservative_gap"

    def __init__(self, config: CqlConfig, device: torch.device) -> None:
        super().__init__(
            config.conservative_weight,
            learned=config.conservative_gap is not None,
            learning_rate=config.critic_learning_rate or config.learning_rate,
            device=device,
        )
        self._gap = config.conservative_gap

    def step(self, gap: Tensor) -> None:
        """One gradient step: the weight grows where the gap exceeds its target. []"""
        if self._gap is not None:
            self.optimizer.step((self._gap - gap,))
            self.log.clamp_(max=LARGEST_LOG_WEIGHT)


class Cql(SoftActorCritic):
    """Soft actor-critic whose critics value actions outside of the data lower."""

    name: ClassVar[str] = "cql"
    config: CqlConfig

    def __init__(self, config: CqlConfig, *, spec: EnvSpec, device: str, seed: int) -> None:
        super().__init__(config, spec=spec, device=device, seed=seed)
        self.conservative = ConservativeWeight(config, self.device)
        self.register_state(
            conservative=self.conservative, conservative_optimizer=self.conservative.optimizer
        )
        self._critic_loss = self.compiled(self.critic_loss)
        self._actor_loss = self.compiled(self.actor_loss)

    def learn(self, batch: TensorBatch) -> Update:
        """Soft actor-critic with conservative critics, and a step of the learned weight."""
        batch = scale_rewards(batch, self.config.reward_scale)
        ent_coef = self.ent_coef()
        critic = self._critic_loss(batch, self.draw_critic_noise(batch), ent_coef)
        metrics = {**critic.metrics, "ent_coef": ent_coef}
        metrics |= self.critics.update(critic.loss)
        self.conservative.step(critic.metrics["conservative_gap"])
        if self.opt_steps % self.config.policy_delay == 0:
            actor = self._actor_loss(batch, self.normal(*batch.action.shape), ent_coef)
            metrics |= self.update_actor(actor, batch.weight)
        self.critics.update_target()
        return Update(metrics=metrics, td_error=mean_abs_error(critic.q, critic.target))

    def critic_loss(
        self, batch: TensorBatch, noise: ConservativeNoise, ent_coef: Tensor
    ) -> CriticLoss:
        """The squared TD errors of all critics, and their weighted gaps."""
        with torch.no_grad():
            action, log_prob = self.sample_action(batch.next_obs, noise.next_action)
            counts = ent_coef if self.config.backup_entropy else torch.zeros_like(ent_coef)
            y = soft_target(
                batch, self.critics.target(batch.next_obs, action), log_prob, counts
            )  # [B, 1]
            weight = self.conservative()
        q = self.critics.online(batch.obs, batch.action)  # [E, B, 1]
        gaps = conservative_gaps(self.soft_maxima(batch, noise), q, batch.weight)  # [E]
        # Half the square and whole gaps, as in equation 4: in the authors' code both are whole.
        loss = squared_loss(q - y, batch.weight) + weight * gaps.sum()
        metrics = {
            "q_mean": q.detach().mean(),
            "conservative_gap": gaps.detach().mean(),
            "conservative_weight": weight,
        }
        return CriticLoss(loss, q.detach(), y, metrics)

    def soft_maxima(self, batch: TensorBatch, noise: ConservativeNoise) -> Tensor:
        """log of the integral of exp Q_i(s, a) over all actions. [E, B, 1]"""
        count, rows, size = noise.uniform.shape
        with torch.no_grad():
            here, log_here = self.sample_action(repeated(batch.obs, count), noise.here)
            there, log_there = self.sample_action(repeated(batch.next_obs, count), noise.there)
            action = torch.cat((2 * noise.uniform.flatten(0, 1) - 1, here, there))
            anywhere = torch.full_like(log_here, -size * math.log(2))  # from -1 to 1
            log_density = torch.cat((anywhere, log_here, log_there)).view(3 * count, rows, 1)
        q = self.critics.online(repeated(batch.obs, 3 * count), action)  # [E, 3 N B, 1]
        return soft_maximum(q.view(len(q), 3 * count, rows, 1), log_density)

    def actor_loss(self, batch: TensorBatch, noise: Tensor, ent_coef: Tensor) -> ActorLoss:
        """The loss of the actor, by the minimum of all critics. noise: [B, A]"""
        action, log_prob = self.sample_action(batch.obs, noise)
        q = self.critics.frozen(batch.obs, action)  # [E, B, 1]
        return policy_loss(q.amin(dim=0), log_prob, ent_coef, batch.weight)

    def draw_critic_noise(self, batch: TensorBatch) -> ConservativeNoise:
        """Draws the noise of the next actions, and that of `sampled_actions` of each kind."""
        rows, size = batch.action.shape
        count = self.config.sampled_actions
        return ConservativeNoise(
            next_action=self.normal(rows, size),
            uniform=self.uniform(count, rows, size),
            here=self.normal(count * rows, size),
            there=self.normal(count * rows, size),
        )


def repeated(features: FeatureTensors, times: int) -> FeatureTensors:
    """All rows once, and once more, so many times. [B, …] -> [times * B, …]"""
    if isinstance(features, dict):
        return {key: _repeated(each, times) for key, each in features.items()}
    return _repeated(features, times)


def _repeated(rows: Tensor, times: int) -> Tensor:
    return rows.expand(times, *rows.shape).flatten(0, 1)
