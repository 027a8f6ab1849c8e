"""Dense layers with an activation between them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import torch
import torch.nn.functional as F  # noqa: N812 - as all of torch's users call it
from torch import Tensor, nn

from border_cli.core.config import Activation
from border_cli.nn.backprop import Layer

# In place, because what stands before an activation is not needed again where it is not SiLU.
ACTIVATIONS = {
    Activation.relu: torch.relu_,
    Activation.tanh: torch.tanh_,
    Activation.elu: F.elu_,
    Activation.silu: F.silu,
}


class Dense(nn.Module):
    """`nn.Linear`, initialised as that is, U(-k, k) with k = inputs**-0.5, but from a generator.

    Torch's global generator is neither needed nor moved. `bound` replaces k.
    """

    def __init__(
        self, inputs: int, outputs: int, generator: torch.Generator, bound: float | None = None
    ) -> None:
        super().__init__()
        bound = inputs**-0.5 if bound is None else bound
        weight = torch.empty(outputs, inputs).uniform_(-bound, bound, generator=generator)
        bias = torch.empty(outputs).uniform_(-bound, bound, generator=generator)
        self.weight = nn.Parameter(weight)
        self.bias = nn.Parameter(bias)

    def forward(self, rows: Tensor) -> Tensor:
        return F.linear(rows, self.weight, self.bias)


class Mlp(nn.Module):
    """`sizes` are those of the input, of each hidden layer and of the output.

    With `layer_norm` each hidden layer is normalised before its activation (Ba, Kiros and Hinton
    2016, "Layer normalization"). `final_bound` draws the last layer from U(-bound, bound), as the
    papers on deterministic policies do.
    """

    def __init__(
        self,
        sizes: Sequence[int],
        generator: torch.Generator,
        *,
        activation: Activation = Activation.relu,
        layer_norm: bool = False,
        final_bound: float | None = None,
    ) -> None:
        super().__init__()
        last = len(sizes) - 2
        self.layers = nn.ModuleList(
            Dense(inputs, outputs, generator, final_bound if i == last else None)
            for i, (inputs, outputs) in enumerate(pairwise(sizes))
        )
        self.norms = nn.ModuleList(
            nn.LayerNorm(size) for size in (sizes[1:-1] if layer_norm else ())
        )
        self._activate = ACTIVATIONS[activation]
        self.plain = activation == Activation.relu and not layer_norm  # `nn.backprop` knows it

    def forward(self, rows: Tensor) -> Tensor:
        return self.layers[-1](self.trunk(rows))  # type: ignore[no-any-return]

    def trunk(self, rows: Tensor) -> Tensor:
        """What the last layer is given. [B, inputs] -> [B, last hidden]"""
        for i, layer in enumerate(self.layers[:-1]):
            rows = layer(rows)
            if self.norms:
                rows = self.norms[i](rows)
            rows = self._activate(rows)
        return rows

    def memory(self) -> tuple[Layer, ...]:
        """The weights where they lie now, shared and without autograd, for `nn.backprop`."""
        return tuple(Layer(each.weight.detach(), each.bias.detach()) for each in self._dense())

    def _dense(self) -> Iterator[Dense]:
        for each in self.layers:
            assert isinstance(each, Dense)  # a ModuleList does not say
            yield each
