"""Quantile regression deep Q-network.

Dabney, Rowland, Bellemare and Munos 2018, "Distributional reinforcement learning with quantile
regression", Algorithm 1. `double`: van Hasselt, Guez and Silver 2016, "Deep reinforcement learning
with double Q-learning".
Deviations: Adam's epsilon is 1e-8 instead of 0.01 / 32 (`adam_epsilon`), the gradient's norm is
clipped at 10 (`max_grad_norm`), and there are 50 quantiles, not 200. The loss is divided by kappa
(`quantile.py`), which changes nothing at the paper's 1. Actions may be chosen by the mean of a
range of quantiles (Dabney, Ostrovski, Silver and Munos 2018, "Implicit quantile networks for
distributional reinforcement learning", Section 3.1). The target network is a Polyak average and the
online network chooses the next action; in the paper the target is a copy and chooses (`tau=1
target_interval=10000 double=false`). Learning rate and batch are for small problems:
docs/agents.md.
"""

from __future__ import annotations

from functools import partial
from typing import ClassVar

import torch
from torch import Tensor

from border_cli.agent.config import QrdqnConfig
from border_cli.agent.descent import Found, index_of, of_action
from border_cli.agent.formula_agent import FormulaAgent
from border_cli.agent.quantile import distance, quantile_target, regression
from border_cli.agent.quantile_policy import QrdqnPolicy
from border_cli.core.interfaces import PolicyFactory
from border_cli.core.spaces import EnvSpec
from border_cli.nn.network import Network
from border_cli.nn.tensor_batch import TensorBatch


def learned(
    outputs: Tensor,
    next_outputs: Tensor,
    chooser: Tensor | None,
    batch: TensorBatch,
    *,
    fractions: Tensor,
    shares: Tensor,
    kappa: float,
) -> Found:
    """What a batch says about quantiles. outputs, next_outputs, chooser [B, num_actions * N]

    Learned are those at `fractions`; actions are chosen by their sum times `shares`. [N]
    """
    shape = len(outputs), -1, len(fractions)  # [B, num_actions, N]
    chosen_by = (next_outputs if chooser is None else chooser).view(shape)
    best = (chosen_by @ shares).argmax(dim=1, keepdim=True)  # [B, 1]
    y = quantile_target(batch, of_action(next_outputs.view(shape), best))  # [B, N]
    quantiles = outputs.view(shape)
    given = of_action(quantiles, batch.action)  # [B, N]
    found = regression(given, fractions, y, batch.weight, kappa)
    index = index_of(batch.action, len(fractions))
    slope = torch.zeros_like(quantiles).scatter_(1, index, found.slope[:, None])
    apart = distance(given, found.target)[:, None]  # [B, 1]
    return Found(slope.flatten(1), found.loss, found.q_mean, apart)


class Qrdqn(FormulaAgent):
    """Learns quantiles of the return at fixed fractions."""

    name: ClassVar[str] = "qrdqn"

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
        )
        self.formula = partial(
            learned,
            fractions=torch.tensor(config.fractions, device=self.device),
            shares=torch.tensor(config.shares, device=self.device),
            kappa=config.kappa,
        )

    @property
    def policy_factory(self) -> PolicyFactory:
        return partial(
            QrdqnPolicy,
            self.config,
            observation=self._spec.observation,
            num_actions=self.num_actions,
        )
