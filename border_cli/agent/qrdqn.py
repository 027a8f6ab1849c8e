"""Quantile regression deep Q-network (QR-DQN).

Dabney, Rowland, Bellemare and Munos 2018, "Distributional reinforcement learning with quantile
regression", Algorithm 1. `double`: van Hasselt, Guez and Silver 2016, "Deep reinforcement learning
with double Q-learning".
Deviations: Adam's epsilon is 1e-8 instead of 0.01 / 32 (`adam_epsilon`), the gradient norm is
clipped at 10 (`max_grad_norm`), and there are 50 quantiles instead of 200. The loss is divided by
kappa, as in Dabney, Ostrovski, Silver and Munos 2018, "Implicit quantile networks for
distributional reinforcement learning", equation 3, so that it becomes the quantile regression loss
as kappa goes to 0; for the paper's kappa of 1 nothing changes. Actions can be ranked by the mean
over a range of quantiles (Section 3.1 of the IQN paper). The target network is a Polyak average
and the online network chooses the next action; in the paper the target network is a periodic copy
and chooses it (`tau=1 target_interval=10000 double=false`). The defaults of learning rate and batch
size suit small problems (docs/agents/differences.md).
"""

from __future__ import annotations

from functools import partial
from typing import ClassVar, NamedTuple

import numpy as np

from border_cli.agent.config import QrdqnConfig
from border_cli.agent.dqn import ValueAgent
from border_cli.agent.policies import q_policy
from border_cli.core.interfaces import PolicyFactory
from border_cli.core.spaces import EnvSpec
from border_cli.nn.arrays import (
    AnyTensor,
    argmax,
    expand_gradient,
    library_of,
    mask_invalid,
    select_action_values,
)
from border_cli.nn.backend import LearnedNetwork
from border_cli.nn.batch import TDResult, TensorBatch


class Regression(NamedTuple):
    """The quantile Huber loss of one batch."""

    grad_output: AnyTensor  # [B, N]  gradient with respect to the quantiles of Z(s, a)
    loss: AnyTensor  # []


def quantile_target(batch: TensorBatch, next_quantiles: AnyTensor) -> AnyTensor:
    """Returns r + d Z(s', a'), where d is 0 if s' is terminal. [B, N'] -> [B, N']"""
    return batch.reward + batch.discount * next_quantiles


def quantile_regression(
    quantiles: AnyTensor, fractions: AnyTensor, target: AnyTensor, weight: AnyTensor, kappa: float
) -> Regression:
    """Returns the quantile Huber loss, summed over quantiles and averaged over targets and rows.

    quantiles [B, N] at `fractions` [B, N] or [N]; target [B, N']; weight [B, 1].
    """
    library = library_of(target)
    error = target[:, None, :] - quantiles[:, :, None]  # [B, N, N']
    # The derivative of the Huber loss, or of the absolute value if kappa is 0.
    bounded = (error / kappa).clip(-1, 1) if kappa else library.sign(error)
    tau = fractions[..., None]  # [B, N, 1] or [N, 1]
    asymmetric = library.where(error < 0, 1 - tau, tau) * bounded  # [B, N, N']
    row_weight = weight / (target.shape[0] * target.shape[1])  # [B, 1]
    loss = (asymmetric * (error - kappa / 2 * bounded)).sum((1, 2))  # [B]
    return Regression(
        grad_output=asymmetric.sum(2) * -row_weight,
        loss=(loss * row_weight[:, 0]).sum(),
    )


def distance(quantiles: AnyTensor, target: AnyTensor) -> AnyTensor:
    """Returns the mean distance of each row's targets from its quantiles, over all pairs.

    This is the priority, because the error of the mean would be 0 if only the spread were wrong.
    With one quantile and one target it is |error|. [..., B, N], [B, N'] -> [..., B]
    """
    return abs(target[:, None, :] - quantiles[..., None]).mean((-2, -1))


def td_loss(
    outputs: AnyTensor,
    next_outputs: AnyTensor,
    next_outputs_online: AnyTensor | None,
    batch: TensorBatch,
    *,
    fractions: AnyTensor,
    shares: AnyTensor,
    kappa: float,
) -> TDResult:
    """Returns the quantile loss from outputs for s and s', [B, num_actions * N] each.

    The outputs are quantiles at `fractions` [N]. Next actions maximise the sum weighted by
    `shares` [N].
    """
    shape = len(outputs), -1, len(fractions)  # [B, num_actions, N]
    ranking = next_outputs if next_outputs_online is None else next_outputs_online
    means = mask_invalid(ranking.reshape(shape) @ shares, batch.next_mask)  # [B, num_actions]
    best = argmax(means)  # [B, 1]
    y = quantile_target(batch, select_action_values(next_outputs.reshape(shape), best))  # [B, N]
    quantiles = outputs.reshape(shape)
    selected = select_action_values(quantiles, batch.action)  # [B, N]
    regression = quantile_regression(selected, fractions, y, batch.weight, kappa)
    return TDResult(
        grad_output=expand_gradient(regression.grad_output, quantiles, batch.action).reshape(
            outputs.shape
        ),
        td_error=distance(selected, y)[:, None],
        metrics={"loss": regression.loss, "q_mean": selected.mean()},
    )


class Qrdqn(ValueAgent):
    """Learns quantiles of the return at fixed fractions."""

    name: ClassVar[str] = "qrdqn"
    config: QrdqnConfig

    def __init__(self, config: QrdqnConfig, *, spec: EnvSpec, device: str, seed: int) -> None:
        super().__init__(config, spec=spec, device=device, seed=seed)
        self.td_loss = partial(
            td_loss,
            fractions=self.backend.tensor(np.array(config.fractions, np.float32)),
            shares=self.backend.tensor(np.array(config.mean_weights, np.float32)),
            kappa=config.kappa,
        )

    def network(self) -> LearnedNetwork:
        return self.backend.make_network(self.num_actions * self.config.num_quantiles)

    @property
    def policy_factory(self) -> PolicyFactory:
        return partial(
            q_policy(self.spec),
            self.config,
            network=self.acting_network(shares=self.config.mean_weights),
            actions=self.actions,
        )
