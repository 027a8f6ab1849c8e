"""Gradients against finite differences."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

STEP = 1e-6


def assert_slopes(loss: Callable[[], Tensor], parameters: Sequence[Tensor]) -> None:
    """Holds autograd's gradient of the loss by each parameter (float64) against differences."""
    exact = torch.autograd.grad(loss(), parameters)
    for ours, each in zip(exact, parameters, strict=True):
        np.testing.assert_allclose(ours.numpy(), slope(loss, each), rtol=1e-6, atol=1e-8)


def slope(loss: Callable[[], Tensor], parameter: Tensor) -> np.ndarray:
    """Central differences of the loss by each number (float64) of the parameter."""
    flat, found = parameter.data.view(-1), np.zeros(parameter.numel())
    for i in range(len(flat)):
        before = float(flat[i])
        flat[i] = before + STEP
        above = float(loss().detach())
        flat[i] = before - STEP
        found[i] = (above - float(loss().detach())) / (2 * STEP)
        flat[i] = before
    return found.reshape(parameter.shape)
