"""How much entropy counts beside reward, fixed or learned."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from border_cli.agent.actor_critic_config import SoftConfig
from border_cli.agent.coefficient import Coefficient


class EntropyCoefficient(Coefficient):
    """The coefficient alpha, which the learner's thread moves so that entropy keeps its target.

    Haarnoja et al. 2018, "Soft actor-critic algorithms and applications", Section 5. Deviation:
    the gradient is that of log alpha times the shortfall, as in the authors' code, and not of alpha
    times it, so that a small alpha is no slower to grow.
    """

    setting: ClassVar[str] = "agent.ent_coef"

    def __init__(self, config: SoftConfig, action_size: int, device: torch.device) -> None:
        super().__init__(
            config.ent_coef_init if config.ent_coef is None else config.ent_coef,
            learned=config.ent_coef is None,
            learning_rate=config.ent_coef_learning_rate or config.learning_rate,
            device=device,
        )
        target = config.target_entropy
        self.target = -float(action_size) if target is None else target

    def follow(self, log_prob: Tensor, weight: Tensor) -> None:
        """One step towards the target: alpha grows where entropy falls short. [B, 1], [B, 1]"""
        if self.learned:
            shortfall = (weight * (log_prob + self.target)).mean()
            self.optimizer.step((-shortfall,))
