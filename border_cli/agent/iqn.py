"""Implicit quantile networks (IQN).

Dabney, Ostrovski, Silver and Munos 2018, "Implicit quantile networks for distributional
reinforcement learning", Algorithm 1, with the risk measures of Section 3.1 that average over a
range of fractions (CVaR). `double`: van Hasselt, Guez and Silver 2016, "Deep reinforcement learning
with double Q-learning".
Deviations: Adam's epsilon is 1e-8 instead of 0.01 / 32 (`adam_epsilon`), the gradient norm is
clipped at 10 (`max_grad_norm`), and N and N' are 8 instead of 64. Actions are ranked by the mean
over evenly spaced fractions instead of sampled ones, in targets as well as when acting. The target
network is a Polyak average and the online network chooses the next action; in the paper the target
network is a periodic copy and chooses it (`tau=1 target_interval=10000 double=false`). The defaults
of learning rate and batch size suit small problems (docs/agents/differences.md).
"""

from __future__ import annotations

from functools import partial
from typing import ClassVar

import torch
from torch import Tensor

from border_cli.agent.config import IqnConfig
from border_cli.agent.dqn import Noises, ValueAgent
from border_cli.agent.policies import q_policy
from border_cli.agent.qrdqn import distance, quantile_regression, quantile_target
from border_cli.core.interfaces import PolicyFactory
from border_cli.core.spaces import EnvSpec
from border_cli.nn.arrays import expand_gradient, mask_invalid, select_action_values
from border_cli.nn.batch import TDResult, TensorBatch
from border_cli.nn.numpy_network import NumpyQuantileNetwork
from border_cli.nn.quantile_network import QuantileNetwork


def target_quantiles(
    online: QuantileNetwork,
    target: QuantileNetwork,
    batch: TensorBatch,
    fractions: Tensor,
    acting: Tensor,
    *,
    double: bool,
) -> Tensor:
    """Returns the quantiles of r + d Z_target(s', a') at `fractions` [B, N']. [B, N']

    a' maximises the mean of Z_target(s', ·), or of Z(s', ·) if `double`, over the fractions
    `acting` [1, K].
    """
    rows = target.embed(batch.next_obs)  # [B, size]
    if double:
        means = online.means(online.embed(batch.next_obs), acting)  # [B, num_actions]
    else:
        means = target.means(rows, acting)
    best = mask_invalid(means, batch.next_mask).argmax(dim=1, keepdim=True)  # [B, 1]
    quantiles = target.quantiles(rows, fractions).mT  # [B, num_actions, N']
    y: Tensor = quantile_target(batch, select_action_values(quantiles, best))
    return y


def iqn_td(
    online: QuantileNetwork,
    target: QuantileNetwork,
    batch: TensorBatch,
    fractions: Tensor,
    target_fractions: Tensor,
    acting: Tensor,
    *,
    double: bool,
    kappa: float,
) -> tuple[Tensor, TDResult]:
    """Returns the cache for the backward pass, and the loss of Z(s, a) at `fractions` [B, N]."""
    quantiles, cache = online.forward_with_cache(batch.obs, fractions)  # [B, N, num_actions]
    per_action = quantiles.mT  # [B, num_actions, N]
    selected = select_action_values(per_action, batch.action)  # [B, N]
    with torch.no_grad():
        y = target_quantiles(online, target, batch, target_fractions, acting, double=double)
        regression = quantile_regression(selected, fractions, y, batch.weight, kappa)
        grad = expand_gradient(regression.grad_output, per_action, batch.action).mT
        metrics = {"loss": regression.loss, "q_mean": selected.mean()}
        return cache, TDResult(grad, distance(selected, y)[:, None], metrics)


class Iqn(ValueAgent):
    """Learns quantiles of the return at fractions sampled for each row of a batch."""

    name: ClassVar[str] = "iqn"
    config: IqnConfig
    online: QuantileNetwork
    target: QuantileNetwork

    def __init__(self, config: IqnConfig, *, spec: EnvSpec, device: str, seed: int) -> None:
        super().__init__(config, spec=spec, device=device, seed=seed)
        self._acting_fractions = torch.tensor([config.fractions], device=self.device)  # [1, K]

    def network(self) -> QuantileNetwork:
        size = self.config.embedding_size
        network = QuantileNetwork(self.architecture, size, self.num_actions, self.init_generator)
        return network.to(self.device)

    @property
    def policy_factory(self) -> PolicyFactory:
        return partial(
            q_policy(self.spec),
            self.config,
            network=self.acting_network(NumpyQuantileNetwork, fractions=self.config.fractions),
            actions=self.actions,
        )

    def td(self, batch: TensorBatch, noises: Noises) -> tuple[Tensor, TDResult]:
        (fractions,), (target_fractions,) = noises  # [B, N], [B, N']
        return iqn_td(
            self.online,
            self.target,
            batch,
            fractions,
            target_fractions,
            self._acting_fractions,
            double=self.config.double,
            kappa=self.config.kappa,
        )

    def draw_noise(self, batch: TensorBatch) -> Noises:
        rows, config = len(batch.reward), self.config
        online = self.backend.uniform(rows, config.num_quantiles_online)
        return (online,), (self.backend.uniform(rows, config.num_quantiles_target),)
