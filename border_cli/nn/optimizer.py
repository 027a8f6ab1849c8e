"""Adam, with clipping of the gradient's norm.

Kingma and Ba 2015, "Adam: a method for stochastic optimization", Algorithm 1.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

BETA_1 = 0.9
BETA_2 = 0.999
EPSILON = 1e-8

_NO_MAXIMA: list[Tensor] = []  # only the AMSGrad variant keeps them


def total_norm(gradient: tuple[Tensor, ...]) -> Tensor:
    """The Euclidean norm over all entries of all tensors.  []"""
    norm: Tensor = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradient)))
    return norm


class Adam:
    """Moves parameters against a gradient, through torch's fused kernel.

    `torch.optim.Adam(fused=True)` calls the same kernel, but the first optimiser of a process
    imports torch._dynamo (0.7 s or more), and its bookkeeping costs over a tenth of a small update.
    """

    def __init__(
        self,
        parameters: Iterable[Tensor],
        *,
        learning_rate: float,
        max_grad_norm: float | None = None,
        beta_1: float = BETA_1,
        epsilon: float = EPSILON,
    ) -> None:
        self._learning_rate = learning_rate
        self._max_grad_norm = max_grad_norm
        self._beta_1 = beta_1
        self._epsilon = epsilon
        self._leaves = list(parameters)
        self._parameters = [each.detach() for each in self._leaves]  # same memory, no autograd
        self._means = [torch.zeros_like(each) for each in self._parameters]
        self._squares = [torch.zeros_like(each) for each in self._parameters]
        # The kernel wants a counter per parameter, float32 on its device: the same for all.
        self._count = torch.zeros((), device=self._parameters[0].device)
        self._steps = [self._count] * len(self._parameters)

    def descend(self, loss: Tensor, slope: Tensor | None = None) -> Tensor | None:
        """One step along the gradient of `loss`, which is asked for by these parameters alone.

        Where that is no single number, `slope` is the derivative of what is minimised by it.
        Returns what `step` does.
        """
        gradient = torch.autograd.grad(loss, self._leaves, slope)
        # The kernel walks through gradients as its parameters lie, whatever their strides say.
        return self.step(tuple(each.contiguous() for each in gradient))

    def step(self, gradient: tuple[Tensor, ...]) -> Tensor | None:
        """One step along `gradient`, one tensor per parameter, overwritten where it is clipped.

        Returns the norm before clipping, or None where nothing is clipped.
        """
        norm = divisor = None
        if self._max_grad_norm is not None:
            norm = total_norm(gradient)
            divisor = (norm / self._max_grad_norm).clamp(min=1.0)  # of the gradient, in the kernel
        self._count += 1
        torch._fused_adam_(
            self._parameters,
            gradient,
            self._means,
            self._squares,
            _NO_MAXIMA,
            self._steps,
            lr=self._learning_rate,
            beta1=self._beta_1,
            beta2=BETA_2,
            weight_decay=0.0,
            eps=self._epsilon,
            amsgrad=False,
            maximize=False,
            grad_scale=divisor,
        )
        return norm

    def state_dict(self) -> dict[str, list[Tensor]]:
        """The averages and counters themselves, not copies."""
        return {"means": self._means, "squares": self._squares, "steps": self._steps}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores what `state_dict` gave, from any device."""
        for name, mine in self.state_dict().items():
            for target, source in zip(mine, state[name], strict=True):
                target.copy_(source)
