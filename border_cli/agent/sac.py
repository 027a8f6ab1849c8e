"""Soft actor-critic, and with other settings what grew out of it.

Haarnoja et al. 2018, "Soft actor-critic: off-policy maximum entropy deep reinforcement learning
with a stochastic actor"; with a learned weight of entropy, and without a network for V, "Soft
actor-critic algorithms and applications", Algorithm 1. conf/agent/redq.yaml makes it Chen et al.
2021, "Randomized ensembled double Q-learning: learning fast without a model", Algorithm 1;
conf/agent/droq.yaml Hiraoka et al. 2022, "Dropout Q-functions for doubly efficient reinforcement
learning", Algorithm 2.
Deviations of REDQ and DroQ: the target entropy is minus the number of action dimensions, as in SAC,
where the authors of both set it by environment (`target_entropy`: Hopper -1, Walker2d and
HalfCheetah -3, Ant -4, Humanoid -2). Weights begin as those of torch.nn.Linear, the authors' as
Xavier's uniform ones with biases of 0. The squared error is halved, as in SAC, which leaves Adam's
steps as they are. The actor climbs the critics after their step, as in Algorithm 1 of SAC; in the
authors' code of REDQ before it. DroQ's `dropout` is 0.01 everywhere, as in one of the authors' two
codes; the other has 0.0001 for Hopper, 0.005 for Walker2d and 0.1 for Humanoid.
"""

from __future__ import annotations

from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from border_cli.agent.actor_critic import weighted_square
from border_cli.agent.actor_critic_config import ActorCritics
from border_cli.agent.config import SacConfig
from border_cli.agent.soft_agent import ActorLoss, CriticLoss, SoftAgent, regret
from border_cli.core.spaces import EnvSpec
from border_cli.nn.features import FeatureTensors
from border_cli.nn.tensor_batch import TensorBatch


def soft_target(batch: TensorBatch, q_next: Tensor, log_prob: Tensor, ent_coef: Tensor) -> Tensor:
    """y = r + d (min_i Q_target_i(s', a') - alpha log pi(a'|s')), where d is 0 at the end.

    [E, B, 1], [B, 1], [] -> [B, 1]
    """
    value = q_next.amin(dim=0) - ent_coef * log_prob
    return torch.addcmul(batch.reward, batch.discount, value)


class Draws(NamedTuple):
    """The random numbers of one `critic_loss`."""

    noise: Tensor  # [B, A] normal, of the next actions
    chosen: Tensor | None  # [K] the critics that a target asks; None: all
    target_kept: list[Tensor] | None  # what dropout leaves of the target critics
    kept: list[Tensor] | None  # … of the critics


class ActorDraws(NamedTuple):
    """The random numbers of one `actor_loss`."""

    noise: Tensor  # [B, A] normal
    kept: list[Tensor] | None  # what dropout leaves of the critics


class Sac(SoftAgent):
    """Owns, beside what soft agents do, the choice of critics; the learner's thread calls it."""

    name: ClassVar[str] = "sac"

    def __init__(self, config: SacConfig, *, spec: EnvSpec, device: str, seed: int) -> None:
        self.config = config
        super().__init__(config, spec=spec, device=device, seed=seed, dropout=config.dropout)

    def draws(self, batch: TensorBatch) -> Draws:
        kept = self._dropout(len(batch.action)), self._dropout(len(batch.action))
        return Draws(self.normal(*batch.action.shape), self._subset(), *kept)

    def actor_draws(self, batch: TensorBatch) -> ActorDraws:
        return ActorDraws(self.normal(*batch.action.shape), self._dropout(len(batch.action)))

    def critic_loss(self, batch: TensorBatch, draws: Draws, ent_coef: Tensor) -> CriticLoss:
        with torch.no_grad():
            action, log_prob = self.sampled(batch.next_obs, draws.noise)
            q_next = self.critic_target(
                batch.next_obs, action, draws.target_kept, draws.chosen
            )  # [K, B, 1]
            y = soft_target(batch, q_next, log_prob, ent_coef)  # [B, 1]
        q = self.critic(batch.obs, batch.action, draws.kept)  # [E, B, 1]
        loss = weighted_square(q - y, batch.weight)
        return CriticLoss(loss, q.detach(), y, {"q_mean": q.detach().mean()})

    def actor_loss(self, batch: TensorBatch, draws: ActorDraws, ent_coef: Tensor) -> ActorLoss:
        action, log_prob = self.sampled(batch.obs, draws.noise)
        value = self.climbed(batch.obs, action, draws.kept)
        return regret(value, log_prob, ent_coef, batch.weight)

    def climbed(
        self, features: FeatureTensors, action: Tensor, kept: list[Tensor] | None = None
    ) -> Tensor:
        q: Tensor = self.critic_fixed(features, action, kept)  # [E, B, 1]
        return q.amin(dim=0) if self.config.actor_critics == ActorCritics.min else q.mean(dim=0)

    def _subset(self) -> Tensor | None:
        """So many critics, none of them twice. [K]"""
        if self.config.subset in (None, self.config.num_critics):
            return None
        order = torch.randperm(self.config.num_critics, generator=self.noise)
        return order[: self.config.subset].to(self.device)

    def _dropout(self, rows: int) -> list[Tensor] | None:
        found = self.critic.mlp.dropout(rows, self.noise)
        return None if found is None else [each.to(self.device) for each in found]
