"""What every agent that learns action values has: an online network, and a target behind it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from border_cli.agent.action_space import num_discrete_actions
from border_cli.agent.torch_agent import TorchAgent, norm_metric
from border_cli.agent.value_config import ValueConfig
from border_cli.core.spaces import EnvSpec
from border_cli.core.types import Update
from border_cli.nn.network import follow, target_of
from border_cli.nn.optimizer import Adam


class ValueAgent(TorchAgent):
    """Owns Q, Q_target and the optimiser; the learner's thread calls it."""

    targets = {"target": "online"}  # noqa: RUF012 - read-only, and a ClassVar in the base

    def __init__(
        self,
        config: ValueConfig,
        *,
        spec: EnvSpec,
        device: str,
        seed: int,
        make: Callable[[int, torch.Generator], nn.Module],
    ) -> None:
        """`make` gives the online network for so many actions, its weights from the generator."""
        super().__init__(config, spec=spec, device=device, seed=seed)
        self._value_settings = config
        self.num_actions = num_discrete_actions(spec, self.name)
        self.online = make(self.num_actions, self.first_weights).to(self.device)
        self.target = target_of(self.online)
        self._follows = list(self.target.parameters()), list(self.online.parameters())
        self.optimizer = Adam(
            self.online.parameters(),
            learning_rate=config.learning_rate,
            max_grad_norm=config.max_grad_norm,
            epsilon=config.adam_epsilon,
        )
        self.keeps(online=self.online, target=self.target, optimizer=self.optimizer)
        self.acts_with(network=self.online)

    def finished(
        self, norm: Tensor | None, metrics: Mapping[str, Tensor], td_error: Callable[[], Any]
    ) -> Update:
        """What ends every update: the target network follows, and what was found is told."""
        settings = self._value_settings
        if self.opt_steps % settings.target_interval == 0:
            with torch.no_grad():
                follow(*self._follows, settings.tau)
        return Update(metrics={**metrics, **norm_metric(norm, "grad_norm")}, td_error=td_error)
