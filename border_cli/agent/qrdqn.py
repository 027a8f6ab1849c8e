"""Quantile regression deep Q-network.

Dabney, Rowland, Bellemare and Munos 2018, "Distributional reinforcement learning with quantile
regression", Algorithm 1. `double`: van Hasselt, Guez and Silver 2016, "Deep reinforcement learning
with double Q-learning".
Deviations: Adam's epsilon is 1e-8 instead of 0.01 / 32 (`adam_epsilon`), the gradient's norm is
clipped at 10 (`max_grad_norm`), and there are 50 quantiles, not 200. The loss is divided by kappa,
as in Dabney, Ostrovski, Silver and Munos 2018, "Implicit quantile networks for distributional
reinforcement learning", equation 3, so that it becomes the quantile regression loss where kappa
becomes 0; at the paper's 1 that changes nothing. Actions may be chosen by the mean of a
range of quantiles (the same, Section 3.1). The target network is a Polyak average and the
online network chooses the next action; in the paper the target is a copy and chooses (`tau=1
target_interval=10000 double=false`). Learning rate and batch are for small problems:
docs/agents.md.
"""

from __future__ import annotations

from functools import partial
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from border_cli.agent.config import QrdqnConfig
from border_cli.agent.dqn import ValueAgent
from border_cli.agent.policies import q_policy
from border_cli.core.interfaces import PolicyFactory
from border_cli.core.spaces import EnvSpec
from border_cli.nn.network import LearnedNetwork, Network
from border_cli.nn.tensor_batch import TDResult, TensorBatch, by_outputs, masked, of_action


class Regression(NamedTuple):
    """The quantile Huber loss of one batch, and its derivative by the quantiles of Q(s, a)."""

    grad_output: Tensor  # [B, N]
    loss: Tensor  # []


def quantile_target(batch: TensorBatch, next_quantiles: Tensor) -> Tensor:
    """r + d Z(s', a'), where d is 0 if s' is terminal. [B, N'] -> [B, N']"""
    return torch.addcmul(batch.reward, batch.discount, next_quantiles)


def quantile_regression(
    quantiles: Tensor, fractions: Tensor, target: Tensor, weight: Tensor, kappa: float
) -> Regression:
    """The quantile Huber loss: the sum over quantiles, the mean over targets and over rows.

    quantiles [B, N] at `fractions` [B, N] or [N]; target [B, N']; weight [B, 1] of each row.
    """
    error = target[:, None, :] - quantiles[:, :, None]  # [B, N, N']
    # The derivative of the Huber loss, which with kappa 0 is that of the absolute value.
    bounded = (error / kappa).clamp(-1, 1) if kappa else error.sign()
    tau = fractions[..., None]  # [B, N, 1] or [N, 1]
    asymmetric = torch.where(error < 0, 1 - tau, tau) * bounded  # [B, N, N']
    row_weight = weight / target.numel()  # [B, 1]
    loss = (asymmetric * torch.sub(error, bounded, alpha=kappa / 2)).sum((1, 2))  # [B]
    return Regression(
        grad_output=asymmetric.sum(2) * -row_weight,
        loss=(loss * row_weight.squeeze(1)).sum(),
    )


def distance(quantiles: Tensor, target: Tensor) -> Tensor:
    """Mean distance of the targets of a row from its quantiles, over all pairs.

    The priority of a row: an error of the mean alone would be 0 where only the spread is wrong.
    Of one quantile and one target it is |error|. [..., B, N], [B, N'] -> [..., B]
    """
    return (target[:, None, :] - quantiles[..., None]).abs().mean((-2, -1))


def td_loss(
    outputs: Tensor,
    next_outputs: Tensor,
    next_outputs_online: Tensor | None,
    batch: TensorBatch,
    *,
    fractions: Tensor,
    shares: Tensor,
    kappa: float,
) -> TDResult:
    """The loss of quantiles for s, given those of s'; all [B, num_actions * N].

    Learned are those at `fractions`; actions are chosen by their sum times `shares`. [N]
    """
    shape = len(outputs), -1, len(fractions)  # [B, num_actions, N]
    chosen_by = (next_outputs if next_outputs_online is None else next_outputs_online).view(shape)
    means = masked(chosen_by @ shares, batch.next_mask)  # [B, num_actions]
    best = means.argmax(dim=1, keepdim=True)  # [B, 1]
    y = quantile_target(batch, of_action(next_outputs.view(shape), best))  # [B, N]
    quantiles = outputs.view(shape)
    of_a = of_action(quantiles, batch.action)  # [B, N]
    found = quantile_regression(of_a, fractions, y, batch.weight, kappa)
    return TDResult(
        grad_output=by_outputs(found.grad_output, quantiles, batch.action).flatten(1),
        td_error=distance(of_a, y)[:, None],
        metrics={"loss": found.loss, "q_mean": of_a.mean()},
    )


class Qrdqn(ValueAgent):
    """Learns quantiles of the return at fixed fractions."""

    name: ClassVar[str] = "qrdqn"
    config: QrdqnConfig

    def __init__(self, config: QrdqnConfig, *, spec: EnvSpec, device: str, seed: int) -> None:
        super().__init__(config, spec=spec, device=device, seed=seed)
        self.td_loss = partial(
            td_loss,
            fractions=torch.tensor(config.fractions, device=self.device),
            shares=torch.tensor(config.shares, device=self.device),
            kappa=config.kappa,
        )

    def network(self) -> LearnedNetwork:
        outputs = self.num_actions * self.config.num_quantiles
        return Network(self.architecture, outputs, self.init_generator)

    @property
    def policy_factory(self) -> PolicyFactory:
        return partial(
            q_policy(self.spec),
            self.config,
            network=self.acting_network(shares=self.config.shares),
            actions=self.actions,
        )
