"""The base of agents with an actor and critics, and the losses they share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, ClassVar, NamedTuple

from numpy.typing import NDArray
from torch import Tensor

from border_cli.agent.action_space import action_outputs
from border_cli.agent.config import ActorCriticConfig
from border_cli.agent.torch_agent import TorchAgent, gradient_step
from border_cli.nn.choices import Choices
from border_cli.nn.ensemble import Critics
from border_cli.nn.network import Network, polyak_update, target_of, without_gradient
from border_cli.nn.tensor_batch import TensorBatch


class CriticLoss(NamedTuple):
    """The loss of the critics on one batch."""

    loss: Tensor  # []
    q: Tensor  # [E, B, M]  Q_i(s, a), or M quantiles of it; without a gradient
    target: Tensor  # [B, K]  y, or K quantiles of it
    metrics: dict[str, Tensor]


class ActorCriticAgent(TorchAgent):
    """Owns actor, critics, target critics and their optimizers; the learner's thread calls it.

    `frozen_critic` is the critics in the same memory, through which gradients reach actions only.
    """

    targets: ClassVar[Mapping[str, str]] = {"critic_target": "critic"}
    config: ActorCriticConfig
    actor: Network

    def make_networks(
        self,
        *,
        actor_outputs: int,
        actor_network: Callable[..., Network],
        action_size: int | None = None,
        critic_outputs: int = 1,
        dropout: float = 0.0,
        final_bound: float | None = None,
    ) -> None:
        """Makes the networks and their optimizers; a constructor calls it.

        `actor_outputs` numbers per observation, `critic_outputs` per critic and action.
        `final_bound` is that of the critics.
        Critics take `action_size` numbers of an action; None: one-hot, or those of a Box.
        """
        config, architecture, generator = self.config, self.architecture, self.init_generator
        self.actor = actor_network(architecture, actor_outputs, generator).to(self.device)
        critics_norm = config.layer_norm or config.critic_layer_norm
        self.critic = Critics(
            replace(architecture, hidden=config.critic_sizes, layer_norm=critics_norm),
            action_outputs(self.spec, self.name) if action_size is None else action_size,
            config.num_critics,
            generator,
            outputs=critic_outputs,
            dropout=dropout,
            final_bound=final_bound,
        ).to(self.device)
        self.critic_target = target_of(self.critic)
        self.frozen_critic = without_gradient(self.critic)
        self._polyak_pair = list(self.critic_target.parameters()), list(self.critic.parameters())
        self.actor_optimizer = self.make_optimizer(
            self.actor, config.learning_rate, config.max_grad_norm
        )
        self.critic_optimizer = self.make_optimizer(
            self.critic, config.critic_learning_rate or config.learning_rate, config.max_grad_norm
        )
        self.register_state(
            actor=self.actor,
            critic=self.critic,
            critic_target=self.critic_target,
            actor_optimizer=self.actor_optimizer,
            critic_optimizer=self.critic_optimizer,
        )
        self.acting_modules["network"] = self.actor

    def update_critic(self, loss: Tensor) -> dict[str, Tensor]:
        """One gradient step of the critics, and its metrics."""
        return gradient_step(self.critic_optimizer, loss, "loss_critic", "grad_norm_critic")

    def update_actor(self, loss: Tensor) -> dict[str, Tensor]:
        """One gradient step of the actor, and its metrics."""
        metrics = gradient_step(self.actor_optimizer, loss, "loss_actor", "grad_norm_actor")
        self.actor.clamp_parameters()
        return metrics

    def update_target(self) -> None:
        """Moves the target critics by `tau`."""
        polyak_update(*self._polyak_pair, self.config.tau)


def critic_action(batch: TensorBatch, choices: Choices | None) -> Tensor:
    """The actions of a batch as critics take them: one-hot, or of a Box. [B, action_size]"""
    return batch.action if choices is None else choices.one_hot(batch.action)


def squared_loss(error: Tensor, weight: Tensor) -> Tensor:
    """Sum over critics of the mean of weight * error^2 / 2. [E, B, 1], [B, 1] -> []"""
    return 0.5 * (weight * error.square()).mean(dim=(1, 2)).sum()


def mean_abs_error(q: Tensor, target: Tensor) -> Callable[[], NDArray[Any]]:
    """The priority of each row: the mean over critics of |Q - y|. [E, B, 1], [B, 1] -> () -> [B]"""
    return lambda: (q - target).abs().mean(dim=(0, 2)).cpu().numpy()
