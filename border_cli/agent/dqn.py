"""Deep Q-network.

Mnih et al. 2015, "Human-level control through deep reinforcement learning", Algorithm 1.
`double`: van Hasselt, Guez and Silver 2016, "Deep reinforcement learning with double Q-learning".
Deviations: Adam instead of RMSProp, and a soft update of the target network where `tau` is below 1
(Lillicrap et al. 2016, "Continuous control with deep reinforcement learning").
"""

from __future__ import annotations

from functools import partial
from typing import ClassVar

from border_cli.agent.config import DqnConfig
from border_cli.agent.q_learning import Descent, descent
from border_cli.agent.q_policy import QPolicy
from border_cli.agent.value_agent import ValueAgent
from border_cli.core.interfaces import PolicyFactory
from border_cli.core.spaces import EnvSpec
from border_cli.core.types import Update
from border_cli.nn.network import Network
from border_cli.nn.tensor_batch import TensorBatch


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
            make=partial(Network, config.architecture(spec.observation)),
        )
        assert isinstance(self.online, Network)
        assert isinstance(self.target, Network)
        self._descent = self.compiled(descent)
        self._memory = self.online.mlp.memory(), self.target.mlp.memory()

    @property
    def policy_factory(self) -> PolicyFactory:
        return partial(
            QPolicy,
            self.config,
            observation=self._spec.observation,
            num_actions=self.num_actions,
        )

    def learn(self, batch: TensorBatch) -> Update:
        found = self._find(batch)
        norm = self.optimizer.step(found.gradient)
        error = found.error  # the gradient need not live as long
        return self.finished(
            norm,
            {"loss": found.loss, "q_mean": found.q_mean},
            lambda: -error.squeeze(1).cpu().numpy(),
        )

    def _find(self, batch: TensorBatch) -> Descent:
        found = self._descent(
            *self._memory, batch, double=self.config.double, loss=self.config.loss
        )
        if self.config.compile and self.device.type == "cuda":
            # A CUDA graph writes to the same memory again; all but the gradient is read later.
            loss, q_mean, error = (each.clone() for each in found[1:])
            found = Descent(found.gradient, loss, q_mean, error)
        return found
