"""Orthogonal initialisation of networks, with the gains of OpenAI's baselines.

Huang et al. 2022, "The 37 implementation details of proximal policy optimization", detail 2.
"""

from __future__ import annotations

import math

import numpy as np
from torch import Tensor, nn

from border_cli.nn.initial_weights import orthogonal
from border_cli.nn.network import Network

HIDDEN_GAIN = math.sqrt(2)


def make_orthogonal(
    network: Network,
    rng: np.random.Generator,
    *,
    gain: float,
    outputs: int | None = None,
    dense_only: bool = False,
) -> None:
    """Sets all layers, or only the dense ones, to orthogonal weights and zero biases.

    The first `outputs` outputs of the last layer (None means all) get `gain`, the others get 1.
    """
    for module in (network.mlp if dense_only else network).modules():
        weight, bias = getattr(module, "weight", None), getattr(module, "bias", None)
        if isinstance(weight, Tensor) and weight.ndim >= 2:
            _fill(weight, HIDDEN_GAIN, rng)
            if isinstance(bias, Tensor):
                nn.init.zeros_(bias)
    last = network.mlp.memory[-1].weight
    _fill(last, 1.0, rng)
    _fill(last[:outputs], gain, rng)


def _fill(weight: Tensor, gain: float, rng: np.random.Generator) -> None:
    """Draws a weight in place. [outputs, inputs], or [outputs, inputs, height, width]"""
    matrix = weight.detach().view(len(weight), -1).numpy()
    matrix[:] = orthogonal(matrix.shape, gain, rng)
