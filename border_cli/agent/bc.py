"""Behaviour cloning, by classification or regression.

Pomerleau 1989, "ALVINN: an autonomous land vehicle in a neural network". The losses are negative
log-likelihoods: cross entropy for discrete actions, squared error (a Gaussian with constant
variance) for continuous actions, or with `stochastic` -log pi of a tanh-squashed Gaussian.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import ClassVar, TypeAlias

import torch
import torch.nn.functional as F  # noqa: N812 - the usual alias
from torch import Tensor

from border_cli.agent.action_space import (
    action_bounds,
    action_outputs,
    components_of,
    format_space,
)
from border_cli.agent.config import BcConfig
from border_cli.agent.continuous_policies import DeterministicPolicy, GaussianPolicy
from border_cli.agent.learning_agent import LearningAgent, gradient_step
from border_cli.agent.policies import categorical_policy
from border_cli.core.interfaces import PolicyFactory
from border_cli.core.spaces import EnvSpec
from border_cli.core.types import Update
from border_cli.errors import ConfigError
from border_cli.nn import distributions
from border_cli.nn.arrays import mask_invalid
from border_cli.nn.batch import TensorBatch
from border_cli.nn.choices import Choices
from border_cli.nn.network import Network

Loss: TypeAlias = Callable[[Tensor, Tensor], Tensor]  # takes outputs and actions, both [B, …]


def choice_loss(outputs: Tensor, action: Tensor) -> Tensor:
    """Returns the mean of -log softmax(logits)[a]. [B, num_actions], [B, 1] -> []"""
    return F.cross_entropy(outputs, action.squeeze(1))


def choices_loss(outputs: Tensor, action: Tensor, choices: Choices) -> Tensor:
    """Returns `choice_loss` summed over the components of an action. [B, S], [B, K] -> []"""
    return -choices.log_prob(outputs, action).mean()


def square_loss(outputs: Tensor, action: Tensor) -> Tensor:
    """Returns the mean of (tanh(x) - a)^2 over rows and dimensions. [B, A], [B, A] -> []"""
    return F.mse_loss(torch.tanh(outputs), action)


def likelihood_loss(outputs: Tensor, action: Tensor) -> Tensor:
    """Returns the mean of -log pi(a|s) for a squashed Gaussian. [B, 2 A], [B, A] -> []"""
    return -distributions.log_prob(*distributions.split(outputs), action).mean()


class Bc(LearningAgent):
    """Owns the policy network and its optimizer. Called by the learner thread only."""

    name: ClassVar[str] = "bc"
    config: BcConfig

    def __init__(self, config: BcConfig, *, spec: EnvSpec, device: str, seed: int) -> None:
        nvec = components_of(spec.action)
        if nvec is not None and config.stochastic:
            raise ConfigError(
                "agent.stochastic must be false for discrete actions, whose policy is always "
                f"stochastic (env.id={spec.id} has {format_space(spec.action)})"
            )
        outputs = action_outputs(spec, self.name) * (2 if config.stochastic else 1)
        super().__init__(config, spec=spec, device=device, seed=seed)
        self.actor = Network(self.architecture, outputs, self.init_generator)
        self.actor.to(self.device)
        self.optimizer = self.make_optimizer(self.actor, config.learning_rate, config.max_grad_norm)
        self.register_state(actor=self.actor, optimizer=self.optimizer)
        self.acting_parts["network"] = self.actor
        self._action_loss: Loss = likelihood_loss if config.stochastic else square_loss
        if nvec is not None:
            choices = Choices(nvec, self.device)
            self._action_loss = (
                choice_loss if choices.is_single else partial(choices_loss, choices=choices)
            )
        self._loss = self.backend.compile(self.loss)

    @property
    def policy_factory(self) -> PolicyFactory:
        network = self.acting_network()
        bounds = action_bounds(self.spec.action)
        if bounds is None:
            return categorical_policy(self.spec, network)
        if self.config.stochastic:
            return partial(GaussianPolicy, network=network, bounds=bounds)
        return partial(DeterministicPolicy, network=network, bounds=bounds)

    def loss(self, batch: TensorBatch) -> Tensor:
        """Returns the imitation loss on the actions in the batch. []"""
        return self._action_loss(mask_invalid(self.actor(batch.obs), batch.mask), batch.action)

    def learn(self, batch: TensorBatch) -> Update:
        loss = self._loss(batch)
        return Update(metrics=gradient_step(self.optimizer, loss, "loss", "grad_norm"))
