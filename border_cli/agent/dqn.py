"""Deep Q-network, in all forms that Rainbow combines.

Mnih et al. 2015, "Human-level control through deep reinforcement learning", Algorithm 1.
`double`: van Hasselt, Guez and Silver 2016, "Deep reinforcement learning with double Q-learning".
`dueling`: Wang et al. 2016, "Dueling network architectures for deep reinforcement learning".
`num_atoms`: Bellemare et al. 2017, "A distributional perspective on reinforcement learning" (C51).
`noisy`: Fortunato et al. 2018, "Noisy networks for exploration".
All of them: Hessel et al. 2018, "Rainbow: combining improvements in deep reinforcement learning".
`conservative_weight`: Kumar et al. 2020, "Conservative Q-learning for offline reinforcement
learning".
Deviations: Adam instead of RMSProp, with an epsilon of 1e-8 where C51 has 0.01 / 32, and Rainbow
and conf/agent/rainbow.yaml 1.5e-4 (`adam_epsilon`). The gradient's norm is clipped at 10 in all
forms (`max_grad_norm`), which of the papers Wang et al. do for dueling. Rewards are not clipped.
The target network is a Polyak average (Lillicrap et al. 2016, "Continuous control with deep
reinforcement learning") and the online network chooses the next action; Mnih et al. copy the
target every 10,000 updates and let it choose (`tau=1 target_interval=10000 double=false`). There is
no factor 2**-0.5 on the gradient that dueling streams send into the layers they share. CQL's
authors add its term to QR-DQN, here it is added to DQN. Learning rate, batch and exploration are
for small problems: docs/agents.md.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import ClassVar

import torch
from torch import Tensor, nn

from border_cli.agent import categorical, q_learning
from border_cli.agent.config import DqnConfig
from border_cli.agent.descent import Formula, Found
from border_cli.agent.dqn_policy import DqnPolicy
from border_cli.agent.formula_agent import FormulaAgent
from border_cli.core.interfaces import PolicyFactory
from border_cli.core.spaces import EnvSpec
from border_cli.nn.architecture import Architecture
from border_cli.nn.network import Network
from border_cli.nn.tensor_batch import TensorBatch
from border_cli.nn.value_network import ValueNetwork


class Dqn(FormulaAgent):
    """Q-learning with a target network that follows every `target_interval` optimisation steps."""

    name: ClassVar[str] = "dqn"

    def __init__(self, config: DqnConfig, *, spec: EnvSpec, device: str, seed: int) -> None:
        self.config = config
        make = _network(config, config.architecture(spec.observation))
        super().__init__(config, spec=spec, device=device, seed=seed, make=make)
        self.formula = self._choose_formula()
        self._support = categorical.Support(config.v_min, config.v_max)

    @property
    def policy_factory(self) -> PolicyFactory:
        return partial(
            DqnPolicy,
            self.config,
            observation=self._spec.observation,
            num_actions=self.num_actions,
        )

    def draw(self) -> Tensor | None:
        if not self.config.noisy:
            return None
        assert isinstance(self.online, ValueNetwork)
        return self.normal(3, self.online.draws)

    def looked(self, found: Found, batch: TensorBatch) -> dict[str, Tensor]:
        if found.spread is None:
            return {}
        return self._support.look(found.spread, batch.discount)

    def _choose_formula(self) -> Formula:
        config = self.config
        if not config.categorical:
            return partial(
                q_learning.learned,
                loss=config.loss,
                conservative_weight=config.conservative_weight,
            )
        atoms = torch.linspace(config.v_min, config.v_max, config.num_atoms, device=self.device)
        return partial(
            categorical.learned, atoms=atoms, conservative_weight=config.conservative_weight
        )


def _network(
    config: DqnConfig, architecture: Architecture
) -> Callable[[int, torch.Generator], nn.Module]:
    """What makes the network of so many actions."""
    if config.plain:
        return lambda num_actions, generator: Network(
            architecture, num_actions * config.num_atoms, generator
        )
    return partial(
        ValueNetwork,
        architecture,
        atoms=config.num_atoms,
        dueling=config.dueling,
        noisy_std=config.noisy_std if config.noisy else None,
    )
