"""TD3 with behaviour cloning, for data that was collected before.

Fujimoto and Gu 2021, "A minimalist approach to offline reinforcement learning", equations 4 and 5.
Observations are normalised by conf/agent/td3_bc.yaml, as in the paper.
Deviations: as in the authors' own code, the size of Q by which it is divided is that of the actor's
actions, not of those in the data. The paper adds 1e-3 to the deviation by which observations are
divided, whereas here 1e-8 is added to its square: of a deviation of 1 that makes a difference of
0.1 %, and what never changes is divided by 1e-4 instead of 1e-3. Normalised observations are cut at
10 deviations, the paper's are not. Critics descend half the squared error, which leaves Adam's
steps as they are.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from border_cli.agent.config import Td3BcConfig
from border_cli.agent.td3 import Td3, chosen
from border_cli.nn.tensor_batch import TensorBatch

SMALLEST_SIZE = 1e-8  # of Q, where it is 0 everywhere


def imitating_loss(q: Tensor, action: Tensor, batch: TensorBatch, alpha: float) -> Tensor:
    """Mean of (pi(s) - a)^2 - lambda Q(s, pi(s)), where lambda = alpha / mean |Q|.

    q is Q(s, pi(s)) [B, 1], and action pi(s) [B, A].
    """
    size = q.detach().abs().mean().clamp(min=SMALLEST_SIZE)
    off = torch.square(action - batch.action).mean(dim=1, keepdim=True)  # [B, 1]
    return (batch.weight * (off - alpha / size * q)).mean()


class Td3Bc(Td3):
    """TD3 whose actor also imitates the data."""

    name: ClassVar[str] = "td3_bc"
    config: Td3BcConfig

    def actor_loss(self, batch: TensorBatch) -> Tensor:
        action = chosen(self.actor, batch.obs)
        q = self.first_critic(batch.obs, action).squeeze(0)  # [B, 1]
        return imitating_loss(q, action, batch, self.config.alpha)
