"""Optimizers that clip the gradient's norm: our Adam, and those of torch.optim by their names.

Kingma and Ba 2015, "Adam: a method for stochastic optimization", Algorithm 1.

No unused gradient is computed: each optimizer requests gradients for its own parameters only.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

from border_cli.errors import ConfigError
from border_cli.settings.schedule import Schedule, value_at
from border_cli.words import unknown

BETA_1 = 0.9
BETA_2 = 0.999
EPSILON = 1e-8

_OURS = ("params", "lr")  # arguments that are no settings of their own
_NO_MAXIMA: list[Tensor] = []  # only the AMSGrad variant keeps them

# The base of all, and those that need a closure, sparse gradients, or matrices alone.
UNFIT = ("Optimizer", "LBFGS", "SparseAdam", "Muon")


class Optimizer(ABC):
    """Moves parameters; the learner's thread owns it."""

    def __init__(
        self,
        parameters: Iterable[Tensor],
        *,
        learning_rate: float | Schedule,
        max_grad_norm: float | None = None,
    ) -> None:
        self.parameters = list(parameters)
        self.learning_rate = learning_rate  # as the settings have it
        self._max_grad_norm = max_grad_norm

    def minimize(self, loss: Tensor) -> Tensor | None:
        """One step along the gradient of `loss` by these parameters; returns what `step` does."""
        return self.step(torch.autograd.grad(loss, self.parameters))

    def clipping(self, gradient: tuple[Tensor, ...]) -> tuple[Tensor | None, Tensor | None]:
        """The norm of the gradient, and what it is to be divided by; None where nothing is
        clipped."""
        if self._max_grad_norm is None:
            return None, None
        norm = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradient)))  # []
        return norm, (norm / self._max_grad_norm).clamp(min=1.0)

    @abstractmethod
    def step(self, gradient: tuple[Tensor, ...]) -> Tensor | None:
        """One step along `gradient`, one tensor per parameter, overwritten where it is clipped.

        Returns the norm before clipping, or None where nothing is clipped.
        """

    @abstractmethod
    def set_learning_rate(self, value: float) -> None:
        """Takes a learning rate for the steps that follow."""

    @abstractmethod
    def state_dict(self) -> Mapping[str, Any]:
        """Itself and not copies."""

    @abstractmethod
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores what `state_dict` gave, from any device."""


def make_optimizer(
    name: str,
    kwargs: Mapping[str, Any],
    parameters: Iterable[Tensor],
    *,
    learning_rate: float | Schedule,
    max_grad_norm: float | None = None,
    epsilon: float = EPSILON,
) -> Optimizer:
    """The optimizer that `agent.optimizer` names, of the parameters that have a gradient.

    An `epsilon` other than Adam's goes to all that take one. Raises ConfigError for a name or
    arguments that torch does not know.
    """
    leaves = [each for each in parameters if each.requires_grad]
    if name == "adam":
        return Adam(
            leaves, learning_rate=learning_rate, max_grad_norm=max_grad_norm, epsilon=epsilon
        )
    kind = _of_torch(name)
    arguments = {"lr": value_at(learning_rate, 0), **kwargs}
    if epsilon != EPSILON:
        if "eps" not in inspect.signature(kind).parameters:
            raise ConfigError(
                f"agent.adam_epsilon must be {EPSILON:g} with agent.optimizer={name}, which has no "
                f"epsilon, got {epsilon!r}"
            )
        arguments.setdefault("eps", epsilon)
    try:
        made = kind(leaves, **arguments)
    except (TypeError, ValueError) as error:
        accepted = [each for each in inspect.signature(kind).parameters if each not in _OURS]
        raise ConfigError(
            f"agent.optimizer={name} with agent.optimizer_kwargs {dict(kwargs)} is not accepted by "
            f"torch.optim.{name}: {error} (accepted: {', '.join(accepted)})"
        ) from error
    return TorchOptimizer(made, leaves, learning_rate=learning_rate, max_grad_norm=max_grad_norm)


def _of_torch(name: str) -> Any:
    known = {
        each: kind
        for each, kind in vars(torch.optim).items()
        if isinstance(kind, type) and each not in UNFIT
    }
    if name not in known:
        raise ConfigError(unknown("agent.optimizer", name, ["adam", *sorted(known, key=str.lower)]))
    return known[name]


class Adam(Optimizer):
    """Moves parameters against a gradient, through torch's fused kernel.

    `torch.optim.Adam(fused=True)` calls the same kernel, but the first optimiser of a process
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
        self._memory = [each.detach() for each in self.parameters]  # without autograd
        self._means = [torch.zeros_like(each) for each in self._memory]
        self._squares = [torch.zeros_like(each) for each in self._memory]
        # The kernel wants a counter per parameter, float32 on its device: the same for all.
        self._count = torch.zeros((), device=self._memory[0].device)
        self._steps = [self._count] * len(self._memory)

    def step(self, gradient: tuple[Tensor, ...]) -> Tensor | None:
        """As `Optimizer` has it."""
        norm, divisor = self.clipping(gradient)  # the kernel divides
        self._count += 1
        # The kernel walks through gradients as its parameters lie, whatever their strides say.
        lying = [each.contiguous() for each in gradient]
        averages = self._means, self._squares, _NO_MAXIMA, self._steps
        torch._fused_adam_(self._memory, lying, *averages, **self._settings, grad_scale=divisor)
        torch.autograd.graph.increment_version(self._memory)  # which the kernel leaves alone
        return norm

    def set_learning_rate(self, value: float) -> None:
        """As `Optimizer` has it."""
        self._settings["lr"] = value

    def state_dict(self) -> dict[str, list[Tensor]]:
        """The averages and counters themselves, not copies."""
        return {"means": self._means, "squares": self._squares, "steps": self._steps}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores what `state_dict` gave, from any device."""
        for name, mine in self.state_dict().items():
            for target, source in zip(mine, state[name], strict=True):
                target.copy_(source)


class TorchOptimizer(Optimizer):
    """An optimizer of torch.optim, which clips the norm as `Adam` does."""

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
        """As `Optimizer` has it; leaves `gradient` as it is."""
        norm, divisor = self.clipping(gradient)
        if divisor is not None:
            gradient = tuple(torch._foreach_div(gradient, divisor))
        for parameter, each in zip(self.parameters, gradient, strict=True):
            parameter.grad = each
        self._optimizer.step()
        self._optimizer.zero_grad()
        return norm

    def set_learning_rate(self, value: float) -> None:
        """As `Optimizer` has it."""
        for group in self._optimizer.param_groups:
            group["lr"] = value

    def state_dict(self) -> dict[str, Any]:
        """Torch's own: itself and not copies."""
        return self._optimizer.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores what `state_dict` gave, from any device; the learning rate stays that of the
        settings, which may have changed."""
        rates = [group["lr"] for group in self._optimizer.param_groups]
        self._optimizer.load_state_dict(dict(state))
        for group, rate in zip(self._optimizer.param_groups, rates, strict=True):
            group["lr"] = rate
