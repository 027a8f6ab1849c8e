"""Dense layers with ReLU between them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import torch
import torch.nn.functional as F  # noqa: N812 - as all of torch's users call it
from torch import Tensor, nn

from border_cli.nn.backprop import Layer


class Dense(nn.Module):
    """`nn.Linear`, initialised as that is, U(-k, k) with k = inputs**-0.5, but from a generator.

    Torch's global generator is neither needed nor moved.
    """

    def __init__(self, inputs: int, outputs: int, generator: torch.Generator) -> None:
        super().__init__()
        bound = inputs**-0.5
        weight = torch.empty(outputs, inputs).uniform_(-bound, bound, generator=generator)
        bias = torch.empty(outputs).uniform_(-bound, bound, generator=generator)
        self.weight = nn.Parameter(weight)
        self.bias = nn.Parameter(bias)

    def forward(self, rows: Tensor) -> Tensor:
        return F.linear(rows, self.weight, self.bias)


class Mlp(nn.Module):
    """`sizes` are those of the input, of each hidden layer and of the output."""

    def __init__(self, sizes: Sequence[int], generator: torch.Generator) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            Dense(inputs, outputs, generator) for inputs, outputs in pairwise(sizes)
        )

    def forward(self, rows: Tensor) -> Tensor:
        *hidden, last = self.layers
        for layer in hidden:
            rows = torch.relu_(layer(rows))  # in place: the sum before it is not needed again
        result: Tensor = last(rows)
        return result

    def memory(self) -> tuple[Layer, ...]:
        """The weights where they lie now, shared and without autograd, for `nn.backprop`."""
        return tuple(Layer(each.weight.detach(), each.bias.detach()) for each in self._dense())

    def _dense(self) -> Iterator[Dense]:
        for each in self.layers:
            assert isinstance(each, Dense)  # a ModuleList does not say
            yield each
