"""What every agent with an actor and critics has: the networks, targets and optimisers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, ClassVar

import torch
import torch.nn.functional as F  # noqa: N812 - as all of torch's users call it
from torch import Tensor

from border_cli.agent.action_space import action_bounds
from border_cli.agent.actor_critic_config import ActorCriticConfig
from border_cli.agent.torch_agent import TorchAgent
from border_cli.core.spaces import DiscreteSpace, EnvSpec
from border_cli.nn.ensemble import Critics
from border_cli.nn.network import Network, follow, target_of, without_gradient
from border_cli.nn.optimizer import Adam
from border_cli.nn.tensor_batch import TensorBatch


class ActorCriticAgent(TorchAgent):
    """Owns actor, critics, target critics and their optimisers; the learner's thread calls it.

    `critic_fixed` is the critics in the same memory, through which gradients reach actions only.
    """

    targets: ClassVar[Mapping[str, str]] = {"critic_target": "critic"}

    def __init__(
        self,
        config: ActorCriticConfig,
        *,
        spec: EnvSpec,
        device: str,
        seed: int,
        actor_outputs: int,
        final_bound: float | None = None,
        critic_outputs: int = 1,
        dropout: float = 0.0,
        actor_network: type[Network] = Network,
    ) -> None:
        """`actor_outputs` numbers per observation, `critic_outputs` per critic and action."""
        super().__init__(config, spec=spec, device=device, seed=seed)
        draw = self.first_weights
        self.actor = actor_network(self.architecture, actor_outputs, draw, final_bound=final_bound)
        self.actor.to(self.device)
        critics_norm = config.layer_norm or config.critic_layer_norm
        self.critic = Critics(
            replace(self.architecture, layer_norm=critics_norm),
            action_size(spec),
            config.num_critics,
            draw,
            outputs=critic_outputs,
            dropout=dropout,
            final_bound=final_bound,
        ).to(self.device)
        self.critic_target = target_of(self.critic)
        self.critic_fixed = without_gradient(self.critic)
        self._tau = config.tau
        self._follows = list(self.critic_target.parameters()), list(self.critic.parameters())
        self.actor_optimizer = Adam(
            self.actor.parameters(),
            learning_rate=config.learning_rate,
            max_grad_norm=config.max_grad_norm,
        )
        self.critic_optimizer = Adam(
            self.critic.parameters(),
            learning_rate=config.critic_learning_rate or config.learning_rate,
            max_grad_norm=config.max_grad_norm,
        )
        self.keeps(
            actor=self.actor,
            critic=self.critic,
            critic_target=self.critic_target,
            actor_optimizer=self.actor_optimizer,
            critic_optimizer=self.critic_optimizer,
        )
        self.acts_with(network=self.actor)

    def descend_critics(self, loss: Tensor) -> dict[str, Tensor]:
        """One step of the critics, and what is told of it."""
        return self.descend(self.critic_optimizer, loss, "loss_critic", "grad_norm_critic")

    def descend_actor(self, loss: Tensor) -> dict[str, Tensor]:
        """One step of the actor, and what is told of it."""
        return self.descend(self.actor_optimizer, loss, "loss_actor", "grad_norm_actor")

    def follow_critic(self) -> None:
        """The target critics follow by `tau`."""
        with torch.no_grad():
            follow(*self._follows, self._tau)


def action_size(spec: EnvSpec) -> int:
    """Numbers per action as critics take it: those of a Box, or one-hot of a Discrete space."""
    if isinstance(spec.action, DiscreteSpace):
        return spec.action.n
    bounds = action_bounds(spec.action)
    assert bounds is not None, "the agent refuses other spaces first"
    return bounds.size


def critic_action(batch: TensorBatch, spec: EnvSpec) -> Tensor:
    """The actions of a batch as critics take them. [B, action_size]"""
    if isinstance(spec.action, DiscreteSpace):
        return F.one_hot(batch.action.squeeze(1), spec.action.n).float()
    return batch.action


def weighted_square(error: Tensor, weight: Tensor) -> Tensor:
    """Sum over critics of the mean of weight * error^2 / 2. [E, B, 1], [B, 1] -> []"""
    return 0.5 * (weight * error.square()).mean(dim=(1, 2)).sum()


def priority_of(error: Tensor) -> Callable[[], Any]:
    """What prioritized replay is told: the mean of |error| over critics. [E, B, 1] -> () -> [B]"""
    found = error.detach()
    return lambda: found.abs().mean(dim=(0, 2)).cpu().numpy()
