"""Adam and AdamW in numpy, on one flat array of weights."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from border_cli.nn.adam_form import ADAM, AdamForm
from border_cli.nn.backend import Optimizer
from border_cli.nn.numpy_learner import Parameters
from border_cli.nn.numpy_network import Rows
from border_cli.settings.schedule import Schedule, value_at


class NumpyAdam(Optimizer):
    """Adam for one or several networks, whose weights it moves to one flat array."""

    def __init__(
        self,
        networks: Sequence[Parameters],
        *,
        learning_rate: float | Schedule,
        max_grad_norm: float | None = None,
        form: AdamForm = ADAM,
    ) -> None:
        self.learning_rate = learning_rate
        self._rate = value_at(learning_rate, 0)
        self._max_grad_norm, self._form = max_grad_norm, form
        shapes = {
            f"{i}.{name}": array.shape
            for i, network in enumerate(networks)
            for name, array in network.state_dict().items()
        }
        self._joint = Parameters(shapes)
        first = 0
        for network in networks:
            part = slice(first, first := first + network.flat.size)
            self._joint.flat[part] = network.flat
            network.bind(self._joint.flat[part], self._joint.gradient[part])
        # Networks write their gradients here; gradients of other functions are copied here.
        self._gradients = [part for network in networks for part in network.gradients]
        self._mean, self._square, self._spare = (np.zeros_like(self._joint.flat) for _ in range(3))
        self._steps = 0

    def step(self, gradient: tuple[Rows, ...]) -> float | None:
        joint, norm = self._joint.gradient, None
        for target, part in zip(self._gradients, gradient, strict=True):
            if part is not target:
                np.copyto(target, part)
        if self._max_grad_norm is not None:
            norm = math.sqrt(joint.dot(joint))
            if norm > self._max_grad_norm:
                joint *= self._max_grad_norm / norm
        self._steps += 1
        self._move(self._joint.flat, joint)
        return norm

    def _move(self, weights: Rows, gradient: Rows) -> None:
        """Updates the moments and the weights (Algorithm 1). The bias corrections are applied to
        the learning rate and epsilon, as at the end of Section 2 of Kingma and Ba 2015."""
        spare, (beta_1, beta_2) = self._spare, self._form.betas
        self._mean *= beta_1
        np.multiply(gradient, 1 - beta_1, out=spare)
        self._mean += spare
        self._square *= beta_2
        np.multiply(gradient, math.sqrt(1 - beta_2), out=spare)
        spare *= spare
        self._square += spare
        root = math.sqrt(1 - beta_2**self._steps)
        np.sqrt(self._square, out=spare)
        spare += self._form.epsilon * root
        np.divide(self._mean, spare, out=spare)
        spare *= self._rate * root / (1 - beta_1**self._steps)
        if self._form.weight_decay:
            weights *= 1 - self._rate * self._form.weight_decay
        weights -= spare

    def set_learning_rate(self, value: float) -> None:
        self._rate = value

    def state_dict(self) -> dict[str, Any]:
        """Returns the averages of each array themselves, not copies, and the number of steps."""
        means, squares = (
            list(self._joint.views(flat).values()) for flat in (self._mean, self._square)
        )
        return {"means": means, "squares": squares, "steps": np.float32(self._steps)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        own = self.state_dict()
        for name in ("means", "squares"):
            for target, source in zip(own[name], state[name], strict=True):
                np.copyto(target, source)
        self._steps = int(state["steps"])
