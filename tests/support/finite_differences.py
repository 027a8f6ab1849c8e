"""Checks of gradients against finite differences."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from border_cli.nn.arrays import AnyTensor

STEP = 1e-6


def assert_slopes(loss: Callable[[], Tensor], parameters: Sequence[Tensor]) -> None:
    """Compares autograd's gradients with respect to float64 parameters with finite differences."""
    exact = torch.autograd.grad(loss(), parameters)
    for gradient, parameter in zip(exact, parameters, strict=True):
        np.testing.assert_allclose(gradient.numpy(), slope(loss, parameter), rtol=1e-6, atol=1e-8)


def slope(loss: Callable[[], AnyTensor], parameter: AnyTensor) -> np.ndarray:
    """Returns the gradient with respect to a float64 parameter, by central differences."""
    is_array = isinstance(parameter, np.ndarray)
    flat = parameter.reshape(-1) if is_array else parameter.detach().view(-1)
    gradient = np.zeros(len(flat))
    for i in range(len(flat)):
        before = float(flat[i])
        flat[i] = before + STEP
        above = _number(loss())
        flat[i] = before - STEP
        gradient[i] = (above - _number(loss())) / (2 * STEP)
        flat[i] = before
    return gradient.reshape(parameter.shape)


def _number(loss: AnyTensor) -> float:
    return float(loss.detach() if isinstance(loss, Tensor) else loss)
