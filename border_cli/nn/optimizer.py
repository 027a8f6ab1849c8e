"""Optimizers that clip the norm of the gradient: our own Adam, and those of torch.optim by name.

Kingma and Ba 2015, "Adam: a method for stochastic optimization", Algorithm 1.

Each optimizer requests gradients for its own parameters only, so no unused gradient is computed.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map_

from border_cli.errors import ConfigError
from border_cli.nn.saving import to_tensors
from border_cli.settings.schedule import Schedule, value_at
from border_cli.words import unknown

BETA_1 = 0.9
BETA_2 = 0.999
EPSILON = 1e-8

_OURS = ("params", "lr")  # not part of agent.optimizer_kwargs
_NO_MAXIMA: list[Tensor] = []  # used by the AMSGrad variant only

# The base class, and optimizers that need a closure, sparse gradients, or only matrices.
UNFIT = ("Optimizer", "LBFGS", "SparseAdam", "Muon")


class Optimizer(ABC):
    """Updates parameters; owned by the learner's thread."""

    def __init__(
        self,
        parameters: Iterable[Tensor],
        *,
        learning_rate: float | Schedule,
        max_grad_norm: float | None = None,
    ) -> None:
        self.parameters = list(parameters)
        self.learning_rate = learning_rate  # value of the setting
        self._max_grad_norm = max_grad_norm

    def minimize(self, loss: Tensor) -> Tensor | None:
        """Takes one step along the gradient of `loss`; returns the result of `step`."""
        return self.step(torch.autograd.grad(loss, self.parameters))

    def clipping(self, gradient: tuple[Tensor, ...]) -> tuple[Tensor | None, Tensor | None]:
        """Returns the norm of the gradient and the divisor that clips it, or None if clipping is
        disabled."""
        if self._max_grad_norm is None:
            return None, None
        norm = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradient)))  # []
        return norm, (norm / self._max_grad_norm).clamp(min=1.0)

    @abstractmethod
    def step(self, gradient: tuple[Tensor, ...]) -> Tensor | None:
        """Takes one step along `gradient`, one tensor per parameter; clipping overwrites it.

        Returns the norm before clipping, or None if clipping is disabled.
        """

    @abstractmethod
    def set_learning_rate(self, value: float) -> None:
        """Sets the learning rate of the following steps."""

    @abstractmethod
    def state_dict(self) -> Mapping[str, Any]:
        """Returns the state itself, not a copy."""

    @abstractmethod
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores a state returned by `state_dict`, of tensors on any device or of arrays."""


def make_optimizer(
    name: str,
    kwargs: Mapping[str, Any],
    parameters: Iterable[Tensor],
    *,
    learning_rate: float | Schedule,
    max_grad_norm: float | None = None,
    epsilon: float = EPSILON,
) -> Optimizer:
    """Builds the optimizer named by `agent.optimizer`, for the trainable parameters.

    An `epsilon` other than Adam's default is passed to any optimizer that accepts one. Raises
    ConfigError if torch does not accept the name or the arguments.
    """
    leaves = [leaf for leaf in parameters if leaf.requires_grad]
    if name == "adam":
        return Adam(
            leaves, learning_rate=learning_rate, max_grad_norm=max_grad_norm, epsilon=epsilon
        )
    kind = _find_kind(name)
    arguments = {"lr": value_at(learning_rate, 0), **kwargs}
    if epsilon != EPSILON:
        if "eps" not in inspect.signature(kind).parameters:
            raise ConfigError(
                f"agent.adam_epsilon must be {EPSILON:g} with agent.optimizer={name}, which has no "
                f"epsilon, got {epsilon!r}"
            )
        arguments.setdefault("eps", epsilon)
    try:
        optim = kind(leaves, **arguments)
    except (TypeError, ValueError) as error:
        accepted = [arg for arg in inspect.signature(kind).parameters if arg not in _OURS]
        raise ConfigError(
            f"agent.optimizer={name} with agent.optimizer_kwargs {dict(kwargs)} is not accepted by "
            f"torch.optim.{name}: {error} (accepted: {', '.join(accepted)})"
        ) from error
    return TorchOptimizer(optim, leaves, learning_rate=learning_rate, max_grad_norm=max_grad_norm)


def _find_kind(name: str) -> Any:
    kinds = {
        key: kind
        for key, kind in vars(torch.optim).items()
        if isinstance(kind, type) and key not in UNFIT
    }
    if name not in kinds:
        raise ConfigError(unknown("agent.optimizer", name, ["adam", *sorted(kinds, key=str.lower)]))
    return kinds[name]


class Adam(Optimizer):
    """Adam, computed by torch's fused kernel.

    `torch.optim.Adam(fused=True)` calls the same kernel, but the first torch optimizer of a process
    imports torch._dynamo (0.7 s or more), and its bookkeeping costs over a tenth of a small update.
    """

    def __init__(
        self,
        parameters: Iterable[Tensor],
        *,
        learning_rate: float | Schedule,
        max_grad_norm: float | None = None,
        epsilon: float = EPSILON,
    ) -> None:
        super().__init__(parameters, learning_rate=learning_rate, max_grad_norm=max_grad_norm)
        self._settings: dict[str, Any] = {
            **{"lr": value_at(learning_rate, 0), "beta1": BETA_1, "beta2": BETA_2, "eps": epsilon},
            **{"weight_decay": 0.0, "amsgrad": False, "maximize": False},
        }
        self._memory = [parameter.detach() for parameter in self.parameters]  # without autograd
        self._means = [torch.zeros_like(parameter) for parameter in self._memory]
        self._squares = [torch.zeros_like(parameter) for parameter in self._memory]
        # The kernel requires a float32 counter per parameter, on its device; all share one.
        self._count = torch.zeros((), device=self._memory[0].device)
        self._steps = [self._count] * len(self._memory)

    def step(self, gradient: tuple[Tensor, ...]) -> Tensor | None:
        norm, divisor = self.clipping(gradient)  # the kernel applies the divisor
        self._count += 1
        # The kernel ignores strides and reads gradients in the memory order of their parameters.
        gradients = [part.contiguous() for part in gradient]
        averages = self._means, self._squares, _NO_MAXIMA, self._steps
        torch._fused_adam_(self._memory, gradients, *averages, **self._settings, grad_scale=divisor)
        torch.autograd.graph.increment_version(self._memory)  # the kernel does not do this
        return norm

    def set_learning_rate(self, value: float) -> None:
        self._settings["lr"] = value

    def state_dict(self) -> dict[str, Any]:
        """Returns the averages and the counter themselves, not copies."""
        return {"means": self._means, "squares": self._squares, "steps": self._count}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        tree_map_(Tensor.copy_, self.state_dict(), to_tensors(state))


class TorchOptimizer(Optimizer):
    """An optimizer of torch.optim, with the same clipping as `Adam`."""

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        parameters: list[Tensor],
        *,
        learning_rate: float | Schedule,
        max_grad_norm: float | None,
    ) -> None:
        super().__init__(parameters, learning_rate=learning_rate, max_grad_norm=max_grad_norm)
        self._optimizer = optimizer

    def step(self, gradient: tuple[Tensor, ...]) -> Tensor | None:
        """Like `Optimizer.step`, but never overwrites `gradient`."""
        norm, divisor = self.clipping(gradient)
        if divisor is not None:
            gradient = tuple(torch._foreach_div(gradient, divisor))
        for parameter, part in zip(self.parameters, gradient, strict=True):
            parameter.grad = part
        self._optimizer.step()
        self._optimizer.zero_grad()
        return norm

    def set_learning_rate(self, value: float) -> None:
        for group in self._optimizer.param_groups:
            group["lr"] = value

    def state_dict(self) -> dict[str, Any]:
        """Returns torch's state itself, not a copy, but with strings as keys."""
        state = self._optimizer.state_dict()
        return {**state, "state": {str(index): part for index, part in state["state"].items()}}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores a state, but keeps the learning rate of the settings, which may have changed."""
        rates = [group["lr"] for group in self._optimizer.param_groups]
        parts = {int(index): part for index, part in to_tensors(state["state"]).items()}
        self._optimizer.load_state_dict({**state, "state": parts})
        for group, rate in zip(self._optimizer.param_groups, rates, strict=True):
            group["lr"] = rate
