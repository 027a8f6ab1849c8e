"""Orthogonal initialisation of networks.

Saxe, McClelland and Ganguli 2014, "Exact solutions to the nonlinear dynamics of learning in deep
linear neural networks"; with the gains of OpenAI's baselines (Huang et al. 2022, detail 2).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from border_cli.nn.network import Network

HIDDEN_GAIN = math.sqrt(2)


@torch.no_grad()
def make_orthogonal(
    network: Network,
    generator: torch.Generator,
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
            nn.init.orthogonal_(weight, HIDDEN_GAIN, generator)
            if isinstance(bias, Tensor):
                nn.init.zeros_(bias)
    last = network.mlp.memory[-1].weight
    nn.init.orthogonal_(last, 1.0, generator)
    nn.init.orthogonal_(last[:outputs], gain, generator)
