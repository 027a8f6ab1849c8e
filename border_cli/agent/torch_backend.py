"""Updates in torch, on a CPU or a GPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map_only

from border_cli.agent.learner_config import LearnerConfig
from border_cli.core.types import Batch
from border_cli.nn.architecture import Architecture
from border_cli.nn.backend import Backend, Initialise, P, Part, R
from border_cli.nn.batch import TensorBatch, as_columns
from border_cli.nn.device import (
    learner_thread,
    open_autograd_context,
    refuse_other_dtype,
    resolve_device,
)
from border_cli.nn.features import Features
from border_cli.nn.matmul import describe_matmul
from border_cli.nn.network import LearnedModule, Network
from border_cli.nn.optimizer import TensorOptimizer, make_optimizer
from border_cli.nn.parameter_limit import count_modules
from border_cli.nn.tensors import to_arrays, to_tensors
from border_cli.nn.value_network import ValueNetwork
from border_cli.settings.schedule import Schedule


class TorchBackend(Backend):
    """Runs networks of any kind with torch."""

    name = "torch"

    def __init__(
        self,
        config: LearnerConfig,
        architecture: Architecture,
        *,
        device: str,
        generator: np.random.Generator,
        noise_seed: int,
        reason: str,
    ) -> None:
        """`generator` draws initial weights; `reason` explains the choice of this backend."""
        refuse_other_dtype()
        count_modules()
        self.device = resolve_device(device)
        open_autograd_context(self.device)
        self._config, self._architecture, self._generator = config, architecture, generator
        self.reason = reason
        # On the CPU, so that a seed gives the same numbers on every device.
        self.noise = torch.Generator().manual_seed(noise_seed)
        self._batch: Batch | None = None  # source of the newest tensors
        # On the CPU, tensors share the memory of a batch, except for compiled updates, which need
        # tensors that are contiguous and never move.
        self._copies_batches = config.compile or self.device.type != "cpu"

    def make_features(self, *, normalize: bool) -> Features:
        return Features(self._architecture, normalize=normalize).to(self.device)

    def make_network(self, outputs: int, initialise: Initialise | None = None) -> Network:
        network = Network(self._architecture, outputs, self._generator)
        if initialise is not None:
            initialise(self.to_arrays(network.state_dict()))
        return network.to(self.device)

    def make_value_network(self, num_actions: int, **form: Any) -> LearnedModule:
        return ValueNetwork(self._architecture, num_actions, self._generator, **form).to(
            self.device
        )

    def make_parameter(self, name: str, value: NDArray[np.float32]) -> nn.Module:
        return nn.ParameterDict({name: torch.from_numpy(value)}).to(self.device)

    def make_optimizer(
        self,
        networks: Sequence[Any],
        *,
        learning_rate: float | Schedule,
        max_grad_norm: float | None,
        epsilon: float,
    ) -> TensorOptimizer:
        return make_optimizer(
            self._config.optimizer,
            self._config.optimizer_kwargs,
            [weight for network in networks for weight in network.parameters()],
            learning_rate=learning_rate,
            max_grad_norm=max_grad_norm,
            epsilon=epsilon,
        )

    def convert(self, batch: Batch) -> TensorBatch:
        # A replay buffer writes all batches of one size to the same arrays, so the tensors are
        # created once.
        if batch is not self._batch:
            shared = as_columns(batch, torch.from_numpy)
            if not self._copies_batches:
                self._tensors = shared
            else:
                if self._batch is None or len(batch) != len(self._tensors.reward):
                    self._tensors = tree_map_only(Tensor, self._empty_like, shared)
                self._copy_lists = _leaves(self._tensors), _leaves(shared)
            self._batch = batch
        if self._copies_batches:
            torch._foreach_copy_(*self._copy_lists, non_blocking=True)
        return self._tensors

    def _empty_like(self, shared: Tensor) -> Tensor:
        return torch.empty(shared.shape, dtype=shared.dtype, device=self.device)

    def tensor(self, array: NDArray[Any]) -> Tensor:
        return torch.from_numpy(array).to(self.device)

    def to_arrays(self, state: Any) -> Any:
        return to_arrays(state)

    def load(self, part: Part, state: Any) -> None:
        part.load_state_dict(to_tensors(state) if isinstance(part, nn.Module) else state)

    def normal(self, *shape: int) -> Tensor:
        return torch.randn(shape, generator=self.noise).to(self.device)

    def uniform(self, *shape: int) -> Tensor:
        return torch.rand(shape, generator=self.noise).to(self.device)

    def noise_state(self) -> Any:
        return self.noise.get_state().numpy()

    def load_noise_state(self, state: Any) -> None:
        self.noise.set_state(torch.tensor(state))

    @contextmanager
    def learner_thread(self) -> Iterator[None]:
        with learner_thread(self._config.num_threads or 1, self._config.matmul_precision):
            yield

    def compile(self, function: Callable[P, R]) -> Callable[P, R]:
        if not self._config.compile:
            return function
        from border_cli.nn.compile import Compiled  # imported late: rarely used

        return Compiled(function, self.device)

    def describe(self) -> list[tuple[str, str]]:
        lines = super().describe()
        if self.device.type == "cpu":
            matmul = describe_matmul(self._config.matmul, self._config.matmul_precision)
            lines.append(("matmul", matmul))
        return lines


def _leaves(batch: TensorBatch) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(batch) if leaf is not None]
