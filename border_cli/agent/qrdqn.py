"""Quantile regression deep Q-network.

Dabney, Rowland, Bellemare and Munos 2018, "Distributional reinforcement learning with quantile
regression", Algorithm 1. `double`: van Hasselt, Guez and Silver 2016, "Deep reinforcement learning
with double Q-learning".
Deviations: actions may be chosen by the mean of a range of quantiles (Dabney, Ostrovski, Silver and
Munos 2018, "Implicit quantile networks for distributional reinforcement learning", Section 3.1),
and a soft update of the target network where `tau` is below 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import ClassVar

import torch
from torch import Tensor

from border_cli.agent.config import QrdqnConfig
from border_cli.agent.quantile import Regression, distance, kept, quantile_target, regression
from border_cli.agent.quantile_policy import QrdqnPolicy
from border_cli.agent.value_agent import ValueAgent
from border_cli.core.interfaces import PolicyFactory
from border_cli.core.spaces import EnvSpec
from border_cli.core.types import Update
from border_cli.nn.backprop import Gradient, Layer, backward, forward
from border_cli.nn.network import Network
from border_cli.nn.tensor_batch import TensorBatch


def learned(
    outputs: Tensor,
    next_outputs: Tensor,
    chooser: Tensor,
    batch: TensorBatch,
    fractions: Tensor,
    shares: Tensor,
    kappa: float,
) -> tuple[Tensor, Regression]:
    """The loss's derivative by what the online network put out, and what else the batch says.

    All outputs are [B, num_actions * N]: of the online network for s, of the target network for
    s', and of whichever of both chooses a' there. fractions, shares [N].
    """
    shape = len(outputs), -1, len(fractions)  # [B, num_actions, N]
    best = (chooser.view(shape) @ shares).argmax(dim=1, keepdim=True)  # [B, 1]
    y = quantile_target(batch, _of_action(next_outputs.view(shape), best))  # [B, N]
    quantiles = outputs.view(shape)
    found = regression(_of_action(quantiles, batch.action), fractions, y, batch.weight, kappa)
    slope = torch.zeros_like(quantiles).scatter_(
        1, _index(batch.action, len(fractions)), found.slope[:, None]
    )
    return slope.flatten(1), found


def _index(action: Tensor, count: int) -> Tensor:
    """[B, 1] -> [B, 1, N]"""
    return action[:, :, None].expand(-1, 1, count)


def _of_action(quantiles: Tensor, action: Tensor) -> Tensor:
    """[B, num_actions, N], [B, 1] -> [B, N]"""
    return quantiles.gather(1, _index(action, quantiles.shape[2])).squeeze(1)


def descent(
    online: Sequence[Layer],
    target: Sequence[Layer],
    batch: TensorBatch,
    fractions: Tensor,
    shares: Tensor,
    *,
    double: bool,
    kappa: float,
) -> tuple[Gradient, Regression]:
    """The gradient of the loss by all weights of dense layers, written out."""
    assert isinstance(batch.obs, Tensor)
    assert isinstance(batch.next_obs, Tensor)
    given = forward(online, batch.obs)
    q_next = forward(target, batch.next_obs)[-1]
    chooser = forward(online, batch.next_obs)[-1] if double else q_next
    slope, found = learned(given[-1], q_next, chooser, batch, fractions, shares, kappa)
    return backward(online, given, slope), found


def descent_by_autograd(
    online: Network,
    target: Network,
    batch: TensorBatch,
    fractions: Tensor,
    shares: Tensor,
    *,
    double: bool,
    kappa: float,
) -> tuple[Tensor, Tensor, Regression]:
    """The same for any network, but for the way back: its outputs, and the slope by them."""
    outputs = online(batch.obs)
    with torch.no_grad():
        q_next = target(batch.next_obs)
        chooser = online(batch.next_obs) if double else q_next
        slope, found = learned(outputs.detach(), q_next, chooser, batch, fractions, shares, kappa)
    return outputs, slope, found


class Qrdqn(ValueAgent):
    """Learns quantiles of the return at fixed fractions."""

    name: ClassVar[str] = "qrdqn"
    online: Network
    target: Network

    def __init__(self, config: QrdqnConfig, *, spec: EnvSpec, device: str, seed: int) -> None:
        self.config = config
        architecture = config.architecture(spec.observation)
        super().__init__(
            config,
            spec=spec,
            device=device,
            seed=seed,
            make=lambda num_actions, generator: Network(
                architecture, num_actions * config.num_quantiles, generator
            ),
            adam_epsilon=config.adam_epsilon,
        )
        self._known = (
            torch.tensor(config.fractions, device=self.device),
            torch.tensor(config.shares, device=self.device),
        )
        self._memory = self.online.mlp.memory(), self.target.mlp.memory()
        self._leaves = list(self.online.parameters())
        # Written out it takes less time, where the network is no more than dense layers with ReLU.
        self._plain = self.online.mlp.plain and not architecture.images
        self._descent = self.compiled(descent)
        self._by_autograd = self.compiled(descent_by_autograd)

    @property
    def policy_factory(self) -> PolicyFactory:
        return partial(
            QrdqnPolicy,
            self.config,
            observation=self._spec.observation,
            num_actions=self.num_actions,
        )

    def learn(self, batch: TensorBatch) -> Update:
        gradient, found = self._find(batch)
        norm = self.optimizer.step(gradient)
        if self.config.compile:
            found = kept(found)
        return self.finished(
            norm,
            {"loss": found.loss, "q_mean": found.q_mean},
            lambda: distance(found).cpu().numpy(),
        )

    def _find(self, batch: TensorBatch) -> tuple[Gradient, Regression]:
        double, kappa = self.config.double, self.config.kappa
        if self._plain:
            return self._descent(*self._memory, batch, *self._known, double=double, kappa=kappa)
        outputs, slope, found = self._by_autograd(
            self.online, self.target, batch, *self._known, double=double, kappa=kappa
        )
        return torch.autograd.grad(outputs, self._leaves, slope), found
