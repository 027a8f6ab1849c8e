"""Critics with target networks and an optimizer, and losses shared by actor-critic agents."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

from numpy.typing import NDArray
from torch import Tensor

from border_cli.agent.config import ActorCriticConfig
from border_cli.agent.learning_agent import LearningAgent, gradient_step
from border_cli.nn.backend import Part
from border_cli.nn.ensemble import Critics
from border_cli.nn.network import polyak_update, target_of, without_gradient

CRITIC_TARGETS = {"critic_target": "critic"}  # `LearningAgent.targets` for agents with critics


class CriticLoss(NamedTuple):
    """The loss of the critics on one batch."""

    loss: Tensor  # []
    q: Tensor  # [E, B, M]  Q_i(s, a) or M quantiles of the return, detached
    target: Tensor  # [B, K]  y or K target quantiles
    metrics: dict[str, Tensor]


class LearnedCritics:
    """The critics of an agent, their targets and optimizer. Owned by the learner thread.

    `frozen` shares the memory of the critics; gradients flow through it to the actions only.
    """

    def __init__(
        self,
        config: ActorCriticConfig,
        *,
        agent: LearningAgent,
        action_size: int,
        outputs: int = 1,
        dropout: float = 0.0,
        final_bound: float | None = None,
    ) -> None:
        """The critics receive `action_size` numbers per action and return `outputs` numbers."""
        layer_norm = config.layer_norm or config.critic_layer_norm
        self.online = Critics(
            replace(agent.architecture, hidden=config.critic_sizes, layer_norm=layer_norm),
            action_size,
            config.num_critics,
            agent.init_generator,
            outputs=outputs,
            dropout=dropout,
            final_bound=final_bound,
        ).to(agent.device)
        self.target = target_of(self.online)
        self.frozen = without_gradient(self.online)
        self.optimizer = agent.make_optimizer(
            self.online, config.critic_learning_rate or config.learning_rate, config.max_grad_norm
        )
        self._tau = config.tau
        self._polyak_pair = list(self.target.parameters()), list(self.online.parameters())

    @property
    def parts(self) -> dict[str, Part]:
        """The critics' parts of the agent's saved state."""
        return {
            "critic": self.online,
            "critic_target": self.target,
            "critic_optimizer": self.optimizer,
        }

    def update(self, loss: Tensor) -> dict[str, Tensor]:
        """Performs one gradient step of the critics and returns its metrics."""
        return gradient_step(self.optimizer, loss, "loss_critic", "grad_norm_critic")

    def update_target(self) -> None:
        """Moves the target critics towards the critics by the fraction `tau`."""
        polyak_update(*self._polyak_pair, self._tau)


def squared_loss(error: Tensor, weight: Tensor) -> Tensor:
    """Returns the sum over critics of the mean of weight * error^2 / 2. [E, B, 1], [B, 1] -> []"""
    return 0.5 * (weight * error.square()).mean(dim=(1, 2)).sum()


def mean_abs_error(q: Tensor, target: Tensor) -> Callable[[], NDArray[Any]]:
    """Returns a function that computes priorities: the mean over critics of |Q - y|. [B]"""
    return lambda: (q - target).abs().mean(dim=(0, 2)).cpu().numpy()
