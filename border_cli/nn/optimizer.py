"""Optimizers that clip the norm of the gradient: our own Adam, and those of torch.optim by name.

Each optimizer requests gradients for its own parameters only, so no unused gradient is computed.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map_

from border_cli.errors import ConfigError
from border_cli.nn.adam_form import ADAM, ADAM_EPSILON, AdamForm, adam_form
from border_cli.nn.backend import Optimizer
from border_cli.nn.tensors import to_tensors
from border_cli.settings.schedule import Schedule, value_at
from border_cli.words import unknown

_OURS = ("params", "lr")  # not part of agent.optimizer_kwargs
_NO_MAXIMA: list[Tensor] = []  # used by the AMSGrad variant only

# The base class, and optimizers that need a closure or sparse gradients, or accept only matrices.
UNFIT = ("Optimizer", "LBFGS", "SparseAdam", "Muon")


class TensorOptimizer(Optimizer):
    """Updates tensors; owned by the learner's thread."""

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
        result: Tensor | None = self.step(torch.autograd.grad(loss, self.parameters))
        return result

    def clipping(self, gradient: tuple[Tensor, ...]) -> tuple[Tensor | None, Tensor | None]:
        """Returns the norm of the gradient and the divisor that clips it, or None if clipping is
        disabled."""
        if self._max_grad_norm is None:
            return None, None
        norm = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradient)))  # []
        return norm, (norm / self._max_grad_norm).clamp(min=1.0)


def make_optimizer(
    name: str,
    kwargs: Mapping[str, Any],
    parameters: Iterable[Tensor],
    *,
    learning_rate: float | Schedule,
    max_grad_norm: float | None = None,
    epsilon: float = ADAM_EPSILON,
) -> TensorOptimizer:
    """Builds the optimizer named by `agent.optimizer`, for the trainable parameters.

    An `epsilon` other than Adam's default is passed on, unless `kwargs` contains `eps`. Raises
    ConfigError if torch does not accept it, the name or the arguments.
    """
    leaves = [leaf for leaf in parameters if leaf.requires_grad]
    form = adam_form(name, kwargs, epsilon)
    if form is not None:
        return Adam(leaves, learning_rate=learning_rate, max_grad_norm=max_grad_norm, form=form)
    kind = _find_kind(name)
    arguments = {"lr": value_at(learning_rate, 0), **kwargs}
    if epsilon != ADAM_EPSILON and "eps" not in kwargs:
        parameter = inspect.signature(kind).parameters.get("eps")
        if parameter is None or not isinstance(parameter.default, float):  # Adafactor has two
            raise ConfigError(
                f"agent.adam_epsilon must be {ADAM_EPSILON:g} with agent.optimizer={name}, which "
                f"has no epsilon, got {epsilon!r}"
            )
        arguments["eps"] = epsilon
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


class Adam(TensorOptimizer):
    """Adam or AdamW, computed by torch's fused kernel.

    `torch.optim.AdamW(fused=True)` calls this kernel, but the first torch optimizer of a process
    imports torch._dynamo (0.7 s or more), and its bookkeeping costs over a tenth of a small update.
    """

    def __init__(
        self,
        parameters: Iterable[Tensor],
        *,
        learning_rate: float | Schedule,
        max_grad_norm: float | None = None,
        form: AdamForm = ADAM,
    ) -> None:
        super().__init__(parameters, learning_rate=learning_rate, max_grad_norm=max_grad_norm)
        self._settings: dict[str, Any] = {
            **{"lr": value_at(learning_rate, 0), "beta1": form.betas[0], "beta2": form.betas[1]},
            **{"eps": form.epsilon, "weight_decay": form.weight_decay},
            **{"amsgrad": False, "maximize": False},
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
        # The kernel ignores strides and reads gradients in the memory order of their parameters,
        # which may be channels last in a user's network.
        gradients = [
            part if part.stride() == memory.stride() else torch.empty_like(memory).copy_(part)
            for memory, part in zip(self._memory, gradient, strict=True)
        ]
        averages = self._means, self._squares, _NO_MAXIMA, self._steps
        torch._fused_adamw_(
            self._memory, gradients, *averages, **self._settings, grad_scale=divisor
        )
        torch.autograd.graph.increment_version(self._memory)  # the kernel does not do this
        return norm

    def set_learning_rate(self, value: float) -> None:
        self._settings["lr"] = value

    def state_dict(self) -> dict[str, Any]:
        """Returns the averages and the counter themselves, not copies."""
        return {"means": self._means, "squares": self._squares, "steps": self._count}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        tree_map_(Tensor.copy_, self.state_dict(), to_tensors(state))


class TorchOptimizer(TensorOptimizer):
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
