"""Conservative Q-learning for continuous actions; see `discrete_cql.py` for discrete actions.

Kumar, Zhou, Tucker and Levine 2020, "Conservative Q-learning for offline reinforcement learning",
CQL(H), equation 4, on top of soft actor-critic. The integral over actions is estimated by
importance sampling, and the weight can be learned (`conservative_gap`, Appendix F). As in the
authors' code, a third of the actions are sampled in s' and evaluated in s, and the targets omit the
entropy in s'. Deviations from the authors' code:
- The squared TD error is halved, as in equation 4, so a `conservative_weight` of 2.5 corresponds to
  5 in the code. The whole loss is then half of theirs, which does not affect Adam's steps.
- Networks have two layers of 256 instead of three.
- The integral is estimated by a mean over the 3 N sampled actions, not by their sum (N is
  `sampled_actions`). The gap is smaller by log(3 N), 3.4 for N = 10, and so is `conservative_gap`.
- A learned weight starts at `conservative_weight` instead of 1, and its gradient omits the factor
  of the weight (`sac.Coefficient`).
- The actor does not start with behaviour cloning, and is updated after the critics, not before.
"""

from __future__ import annotations

import math
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from border_cli.agent.config import CqlConfig
from border_cli.agent.critics import CriticLoss, squared_loss
from border_cli.agent.sac import (
    ActorLoss,
    Coefficient,
    SoftActorCritic,
    policy_loss,
    soft_target,
)
from border_cli.core.spaces import EnvSpec
from border_cli.core.types import Update
from border_cli.nn.batch import TensorBatch
from border_cli.nn.features import FeatureTensors

LARGEST_LOG_WEIGHT = math.log(1e6)  # limit of a learned weight, as in the authors' code


class ConservativeNoise(NamedTuple):
    """The random numbers for one call of `Cql.critic_loss`, with N actions per source and row."""

    next_action: Tensor  # [B, A] standard normal, for the action in the target
    uniform: Tensor  # [N, B, A] uniform in [0, 1), for the uniform actions
    obs_action: Tensor  # [N B, A] standard normal, for the actor's actions in s
    next_obs_action: Tensor  # [N B, A] standard normal, for the actor's actions in s'


def soft_maximum(q: Tensor, log_density: Tensor) -> Tensor:
    """Estimates log of the integral of exp Q(s, a) over a, from actions and their densities.

    q: [E, N, B, 1], log_density: [N, B, 1] -> [E, B, 1]
    """
    return torch.logsumexp(q - log_density, dim=1) - math.log(q.shape[1])


def conservative_gaps(soft_maxima: Tensor, q: Tensor, weight: Tensor) -> Tensor:
    """Returns the mean gap between the soft maximum of Q and Q(s, a) of the data, per critic.

    [E, B, 1], [E, B, 1], [B, 1] -> [E]
    """
    return (weight * (soft_maxima - q)).mean(dim=(1, 2))


class ConservativeWeight(Coefficient):
    """The weight of the gaps, either fixed or learned to keep the gap at its target."""

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
        """Performs one gradient step; the weight grows if the gap exceeds its target. []"""
        if self._gap is not None:
            self.optimizer.step((self._gap - gap,))
            self.log.clamp_(max=LARGEST_LOG_WEIGHT)


class Cql(SoftActorCritic):
    """Soft actor-critic with lower Q-values for actions that are not in the data."""

    name: ClassVar[str] = "cql"
    config: CqlConfig

    def __init__(self, config: CqlConfig, *, spec: EnvSpec, device: str, seed: int) -> None:
        super().__init__(config, spec=spec, device=device, seed=seed)
        self.conservative = ConservativeWeight(config, self.device)
        self.register_state(
            conservative=self.conservative, conservative_optimizer=self.conservative.optimizer
        )

    def learn(self, batch: TensorBatch) -> Update:
        """Like soft actor-critic, and updates the weight of the gaps."""
        update = super().learn(batch)
        gap = update.metrics["conservative_gap"]
        assert isinstance(gap, Tensor)
        self.conservative.step(gap)
        return update

    def critic_loss(
        self, batch: TensorBatch, noise: ConservativeNoise, ent_coef: Tensor
    ) -> CriticLoss:
        """Returns the squared TD errors plus the weighted conservative gaps of all critics."""
        with torch.no_grad():
            action, log_prob = self.sample_action(batch.next_obs, noise.next_action)
            alpha = ent_coef if self.config.backup_entropy else torch.zeros_like(ent_coef)
            y = soft_target(
                batch, self.critics.target(batch.next_obs, action), log_prob, alpha
            )  # [B, 1]
            weight = self.conservative()
        q = self.critics.online(batch.obs, batch.action)  # [E, B, 1]
        gaps = conservative_gaps(self.soft_maxima(batch, noise), q, batch.weight)  # [E]
        # As in equation 4, only squared errors are halved. The authors' code halves neither term.
        loss = squared_loss(q - y, batch.weight) + weight * gaps.sum()
        metrics = {
            "q_mean": q.detach().mean(),
            "conservative_gap": gaps.detach().mean(),
            "conservative_weight": weight,
        }
        return CriticLoss(loss, q.detach(), y, metrics)

    def soft_maxima(self, batch: TensorBatch, noise: ConservativeNoise) -> Tensor:
        """Estimates log of the integral of exp Q_i(s, a) over a, for each critic. [E, B, 1]"""
        count, rows, size = noise.uniform.shape
        with torch.no_grad():
            action_here, log_here = self.sample_action(tile(batch.obs, count), noise.obs_action)
            action_next, log_next = self.sample_action(
                tile(batch.next_obs, count), noise.next_obs_action
            )
            action = torch.cat((2 * noise.uniform.flatten(0, 1) - 1, action_here, action_next))
            log_uniform = torch.full_like(log_here, -size * math.log(2))  # on [-1, 1]
            log_density = torch.cat((log_uniform, log_here, log_next)).view(3 * count, rows, 1)
        q = self.critics.online(tile(batch.obs, 3 * count), action)  # [E, 3 N B, 1]
        return soft_maximum(q.view(len(q), 3 * count, rows, 1), log_density)

    def actor_loss(self, batch: TensorBatch, noise: Tensor, ent_coef: Tensor) -> ActorLoss:
        """Returns the actor loss, with the minimum over all critics as Q. noise: [B, A]"""
        action, log_prob = self.sample_action(batch.obs, noise)
        q = self.critics.frozen(batch.obs, action)  # [E, B, 1]
        return policy_loss(q.amin(dim=0), log_prob, ent_coef, batch.weight)

    def draw_critic_noise(self, batch: TensorBatch) -> ConservativeNoise:
        """Draws the noise of the next actions and of `sampled_actions` actions per source."""
        rows, size = batch.action.shape
        count = self.config.sampled_actions
        return ConservativeNoise(
            next_action=self.backend.normal(rows, size),
            uniform=self.backend.uniform(count, rows, size),
            obs_action=self.backend.normal(count * rows, size),
            next_obs_action=self.backend.normal(count * rows, size),
        )


def tile(features: FeatureTensors, times: int) -> FeatureTensors:
    """Repeats the whole batch. [B, …] -> [times * B, …]"""
    if isinstance(features, dict):
        return {key: _tile(part, times) for key, part in features.items()}
    return _tile(features, times)


def _tile(rows: Tensor, times: int) -> Tensor:
    return rows.expand(times, *rows.shape).flatten(0, 1)
