"""TD3 with behaviour cloning (TD3+BC), for offline data.

Fujimoto and Gu 2021, "A minimalist approach to offline reinforcement learning", equations 4 and 5.
conf/agent/td3_bc.yaml enables the normalisation of observations, as in the paper.
Deviations from the paper: Q is divided by its mean absolute value at the actor's actions instead of
those in the data, as in the authors' code. When observations are normalised, 1e-8 is added to the
variance instead of 1e-3 to the standard deviation: one of 1 stays 1 instead of becoming 1.001, and
constant columns are divided by 1e-4 instead of 1e-3. Normalised observations are clipped at 10
standard deviations. The squared error of the critics is halved, which does not affect Adam's steps.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from border_cli.agent.config import Td3BcConfig
from border_cli.agent.td3 import Td3, select_action
from border_cli.nn.batch import TensorBatch

SMALLEST_SIZE = 1e-8  # lower bound on mean |Q|, to avoid division by zero


def imitating_loss(q: Tensor, action: Tensor, batch: TensorBatch, alpha: float) -> Tensor:
    """Returns the mean of (pi(s) - a)^2 - lambda Q(s, pi(s)), where lambda = alpha / mean |Q|.

    `q` is Q(s, pi(s)) [B, 1], and `action` is pi(s) [B, A].
    """
    mean_abs_q = q.detach().abs().mean().clamp(min=SMALLEST_SIZE)
    squared_error = torch.square(action - batch.action).mean(dim=1, keepdim=True)  # [B, 1]
    loss: Tensor = (batch.weight * (squared_error - alpha / mean_abs_q * q)).mean()
    return loss


class Td3Bc(Td3):
    """TD3 with an actor that also imitates the data."""

    name: ClassVar[str] = "td3_bc"
    config: Td3BcConfig

    def actor_loss(self, batch: TensorBatch) -> Tensor:
        action = select_action(self.actor, batch.obs)
        q = self.first_critic(batch.obs, action).squeeze(0)  # [B, 1]
        return imitating_loss(q, action, batch, self.config.alpha)
