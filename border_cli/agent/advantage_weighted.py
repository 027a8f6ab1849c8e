"""What AWAC and IQL share: an actor that clones the actions of the data, the better ones more."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from border_cli.agent.action_space import action_bounds, bounded_actions
from border_cli.agent.actor_critic import ActorCriticAgent
from border_cli.agent.actor_critic_config import AwacConfig
from border_cli.agent.categorical_policy import CategoricalPolicy
from border_cli.agent.clipped_gaussian_policy import ClippedGaussianPolicy
from border_cli.core.interfaces import PolicyFactory
from border_cli.core.spaces import DiscreteSpace, EnvSpec
from border_cli.nn.distributions import CategoricalNetwork, GaussianNetwork, StochasticNetwork
from border_cli.nn.tensor_batch import TensorBatch


class CriticLoss(NamedTuple):
    """What one batch says about the critics."""

    loss: Tensor  # []
    q: Tensor  # [B, 1]  min_i Q_i(s, a)
    error: Tensor  # [E, B, 1]  Q_i(s, a) - y


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
    """-E[w log pi(a|s)], weighted for how rows were sampled. [B, 1] each -> []"""
    return -(weight * advantage_weight * log_prob).mean()


class AdvantageAgent(ActorCriticAgent):
    """Owns what every actor-critic does, its actor a distribution of Box or Discrete actions."""

    actor: StochasticNetwork

    def __init__(self, config: AwacConfig, *, spec: EnvSpec, device: str, seed: int) -> None:
        self._advantage_settings = config
        self._discrete = isinstance(spec.action, DiscreteSpace)
        super().__init__(
            config,
            spec=spec,
            device=device,
            seed=seed,
            actor_outputs=_actor_outputs(spec, self.name),
            actor_network=CategoricalNetwork if self._discrete else GaussianNetwork,
        )

    @property
    def policy_factory(self) -> PolicyFactory:
        space = self._spec.action
        if isinstance(space, DiscreteSpace):
            return partial(
                CategoricalPolicy,
                architecture=self.architecture,
                num_actions=space.n,
                agent=self.name,
            )
        bounds = action_bounds(space)
        assert bounds is not None, "the constructor refuses other spaces"
        return partial(
            ClippedGaussianPolicy, architecture=self.architecture, bounds=bounds, agent=self.name
        )

    def action_noise(self, rows: int) -> Tensor:
        """What `actor.sample` draws its actions with. [B, A]"""
        size = _actor_outputs(self._spec, self.name)
        return self.uniform(rows, size) if self._discrete else self.normal(rows, size)

    def weighted_cloning(self, outputs: Tensor, batch: TensorBatch, advantage: Tensor) -> Tensor:
        """The actor's loss, given what it puts out for the batch. [B, outputs], [B, 1] -> []"""
        settings = self._advantage_settings
        counts_for = advantage_weights(
            advantage,
            inv_lambda=settings.inv_lambda,
            exp_adv_max=settings.exp_adv_max,
            softmax=settings.adv_softmax,
        )
        return cloning_loss(self.actor.log_prob(outputs, batch.action), counts_for, batch.weight)

    def descend_actor(self, loss: Tensor) -> dict[str, Tensor]:
        metrics = super().descend_actor(loss)
        self.actor.confine()
        return metrics


def _actor_outputs(spec: EnvSpec, agent: str) -> int:
    """One number per action, or per dimension of one; refuses what is neither."""
    if isinstance(spec.action, DiscreteSpace):
        return spec.action.n
    return bounded_actions(spec, agent, also="a Discrete or ").size
