"""Deep Q-network, in all forms that Rainbow combines.

Mnih et al. 2015, "Human-level control through deep reinforcement learning", Algorithm 1.
`double`: van Hasselt, Guez and Silver 2016, "Deep reinforcement learning with double Q-learning".
`dueling`: Wang et al. 2016, "Dueling network architectures for deep reinforcement learning".
`num_atoms`: Bellemare et al. 2017, "A distributional perspective on reinforcement learning" (C51).
`noisy`: Fortunato et al. 2018, "Noisy networks for exploration".
All of them: Hessel et al. 2018, "Rainbow: combining improvements in deep reinforcement learning".
`conservative_weight`: Kumar et al. 2020, "Conservative Q-learning for offline reinforcement
learning".
Deviations: Adam instead of RMSProp, a soft update of the target network where `tau` is below 1
(Lillicrap et al. 2016, "Continuous control with deep reinforcement learning"), and no factor
2**-0.5 on the gradient that dueling streams send into the layers they share.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import ClassVar

import torch
from torch import Tensor, nn

from border_cli.agent import categorical, q_learning
from border_cli.agent.config import DqnConfig
from border_cli.agent.dqn_policy import DqnPolicy
from border_cli.agent.q_learning import Formula, Found, descent, descent_by_autograd, kept
from border_cli.agent.value_agent import ValueAgent
from border_cli.core.interfaces import PolicyFactory
from border_cli.core.spaces import EnvSpec
from border_cli.core.types import Update
from border_cli.nn.architecture import Architecture
from border_cli.nn.backprop import Gradient, Layer
from border_cli.nn.network import Network
from border_cli.nn.tensor_batch import TensorBatch
from border_cli.nn.value_network import ValueNetwork


class Dqn(ValueAgent):
    """Q-learning with a target network that follows every `target_interval` optimisation steps."""

    name: ClassVar[str] = "dqn"

    def __init__(self, config: DqnConfig, *, spec: EnvSpec, device: str, seed: int) -> None:
        self.config = config
        super().__init__(
            config,
            spec=spec,
            device=device,
            seed=seed,
            make=_network(config, config.architecture(spec.observation)),
            adam_epsilon=config.adam_epsilon,
        )
        self._leaves = list(self.online.parameters())
        self._memory = self._dense_layers()
        self._formula = self._choose_formula()
        self._descent = self.compiled(descent)
        self._by_autograd = self.compiled(descent_by_autograd)

    @property
    def policy_factory(self) -> PolicyFactory:
        return partial(
            DqnPolicy,
            self.config,
            observation=self._spec.observation,
            num_actions=self.num_actions,
        )

    def learn(self, batch: TensorBatch) -> Update:
        gradient, found = self._find(batch)
        norm = self.optimizer.step(gradient)
        if self.config.compile and self.device.type == "cuda":
            # A CUDA graph writes to the same memory again; all but the slope is read later.
            found = kept(found)
        metrics = {"loss": found.loss, "q_mean": found.q_mean}
        if found.gap is not None:
            metrics["conservative_gap"] = found.gap
        error = found.error  # the slope need not live as long
        return self.finished(norm, metrics, lambda: error.squeeze(1).cpu().numpy())

    def _find(self, batch: TensorBatch) -> tuple[Gradient, Found]:
        double, formula = self.config.double, self._formula
        if self._memory is not None:
            return self._descent(*self._memory, batch, formula=formula, double=double)
        outputs, found = self._by_autograd(
            self.online, self.target, batch, self._draw(), formula=formula, double=double
        )
        return torch.autograd.grad(outputs, self._leaves, found.slope), found

    def _draw(self) -> Tensor | None:
        if not self.config.noisy:
            return None
        assert isinstance(self.online, ValueNetwork)
        return self.normal(3, self.online.draws)

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

    def _dense_layers(self) -> tuple[tuple[Layer, ...], tuple[Layer, ...]] | None:
        """Weights of both networks where they are no more than dense layers with ReLU: for them
        the gradient is written out, which takes less time."""
        online, target = self.online, self.target
        if not isinstance(online, Network) or not isinstance(target, Network):
            return None
        if self.architecture.images or not online.mlp.plain:
            return None
        return online.mlp.memory(), target.mlp.memory()


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
