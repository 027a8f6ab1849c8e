"""Dense layers whose weights are noisy, by as much as learning finds useful.

Fortunato et al. 2018, "Noisy networks for exploration", Section 3, with factorised noise.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812 - as all of torch's users call it
from torch import Tensor, nn

from border_cli.nn.mlp import Dense


class NoisyDense(Dense):
    """y = (mu_w + sigma_w * eps_w) x + mu_b + sigma_b * eps_b, with eps_w = f(eps_out) f(eps_in)^T.

    The means begin as the weights of `Dense`, which are the paper's, and every sigma as
    `std * inputs**-0.5`.
    """

    def __init__(self, inputs: int, outputs: int, generator: torch.Generator, *, std: float):
        super().__init__(inputs, outputs, generator)
        self.weight_std = nn.Parameter(torch.full((outputs, inputs), std * inputs**-0.5))
        self.bias_std = nn.Parameter(torch.full((outputs,), std * inputs**-0.5))

    def forward(self, rows: Tensor, noise: Tensor | None = None) -> Tensor:
        """`noise` [inputs + outputs] is what `factors` gave; without it the weights are means."""
        if noise is None:
            return super().forward(rows)
        by_input, by_output = noise.split_with_sizes((self.weight.shape[1], self.weight.shape[0]))
        weight = torch.addcmul(self.weight, self.weight_std, torch.outer(by_output, by_input))
        return F.linear(rows, weight, torch.addcmul(self.bias, self.bias_std, by_output))


def factors(normal: Tensor) -> Tensor:
    """f(x) = sgn(x) sqrt(|x|), entry by entry."""
    return normal.sign() * normal.abs().sqrt()
