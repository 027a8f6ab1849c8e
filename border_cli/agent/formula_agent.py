"""What DQN and QR-DQN share: a network that gives all actions at once, and a formula for it."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from border_cli.agent.descent import Formula, Found, descent, descent_by_autograd
from border_cli.agent.value_agent import ValueAgent
from border_cli.agent.value_config import ValueConfig
from border_cli.core.spaces import EnvSpec
from border_cli.core.types import Update
from border_cli.nn.network import Gradient, Layer, Network
from border_cli.nn.tensor_batch import TensorBatch

LOOK_EVERY = 100  # updates


class FormulaAgent(ValueAgent):
    """Owns what every value-based agent does; a subclass sets the `formula`."""

    formula: Formula

    def __init__(
        self,
        config: ValueConfig,
        *,
        spec: EnvSpec,
        device: str,
        seed: int,
        make: Callable[[int, torch.Generator], nn.Module],
    ) -> None:
        super().__init__(config, spec=spec, device=device, seed=seed, make=make)
        self._double = config.double
        self._dense = self._dense_layers()
        self._descent = self.compiled(descent)
        self._by_autograd = self.compiled(descent_by_autograd)

    def learn(self, batch: TensorBatch) -> Update:
        norm, found = self._descend(batch)
        metrics = {"loss": found.loss, "q_mean": found.q_mean}
        if found.gap is not None:
            metrics["conservative_gap"] = found.gap
        if self.opt_steps % LOOK_EVERY == 0:
            metrics |= self.looked(found, batch)
        error = found.error  # the slope need not live as long
        return self.finished(norm, metrics, lambda: error.squeeze(1).cpu().numpy())

    def looked(self, found: Found, batch: TensorBatch) -> dict[str, Tensor]:  # noqa: ARG002
        """What only some updates tell, because it takes time."""
        return {}

    def draw(self) -> Tensor | None:
        """What the networks' passes are noisy by, where they are. [3, draws]"""
        return None

    def _descend(self, batch: TensorBatch) -> tuple[Tensor | None, Found]:
        double, formula = self._double, self.formula
        if self._dense is not None:
            gradient: Gradient
            gradient, found = self._descent(*self._dense, batch, formula=formula, double=double)
            return self.optimizer.step(gradient), found
        outputs, found = self._by_autograd(
            self.online, self.target, batch, self.draw(), formula=formula, double=double
        )
        return self.optimizer.descend(outputs, found.slope), found

    def _dense_layers(self) -> tuple[tuple[Layer, ...], tuple[Layer, ...]] | None:
        """Weights of both networks where they are no more than dense layers with ReLU: for them
        the gradient is written out, which takes less time."""
        online, target = self.online, self.target
        if not isinstance(online, Network) or not isinstance(target, Network):
            return None
        if self.architecture.has_encoder or not online.mlp.plain:
            return None
        return online.mlp.memory(), target.mlp.memory()
