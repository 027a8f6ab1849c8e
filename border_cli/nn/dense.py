"""Dense layers: passes written out, and modules that may be normalised or noisy.

The backward pass through ReLU and tanh is written out, because autograd's bookkeeping costs more in
networks this small than the pass itself: an update of DQN takes 1.4 times as long with it. Where
autograd computes what stands around such layers, torch multiplies, or oneDNN (`onednn_layers`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple, TypeAlias

import torch
import torch.nn.functional as F  # noqa: N812 - as all of torch's users call it
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from border_cli.nn.architecture import Architecture
from border_cli.nn.matmul import product, suits_onednn, uses_onednn
from border_cli.settings.networks import Activation

Gradient: TypeAlias = tuple[Tensor, ...]  # weight, bias, weight, bias, …

# In place, because what stands before an activation is not needed again where it is not SiLU.
ACTIVATIONS = {
    Activation.relu: torch.relu_,
    Activation.tanh: torch.tanh_,
    Activation.elu: F.elu_,
    Activation.silu: F.silu,
}


class Layer(NamedTuple):
    """The memory of one dense layer."""

    weight: Tensor  # [outputs, inputs]
    bias: Tensor  # [outputs]


def forward_pass(
    layers: Sequence[Layer], rows: Tensor, *, onednn: bool, tanh: bool = False
) -> list[Tensor]:
    """The inputs of each layer, and last the outputs of the network. [B, inputs] …, [B, outputs]

    ReLU or tanh stands between the layers; autograd is left out.
    """
    inputs = [rows]
    for weight, bias in layers[:-1]:
        if tanh:
            inputs.append(product(inputs[-1], weight.t(), bias, onednn=onednn).tanh_())
        else:
            inputs.append(product(inputs[-1], weight.t(), bias, "relu", onednn=onednn))
    weight, bias = layers[-1]
    inputs.append(product(inputs[-1], weight.t(), bias, onednn=onednn))
    return inputs


def deltas(
    layers: Sequence[Layer],
    inputs: Sequence[Tensor],
    grad_output: Tensor,
    *,
    onednn: bool,
    tanh: bool = False,
) -> list[Tensor]:
    """The derivative of the loss by the sums of each layer, before ReLU or tanh. [B, outputs] …

    `inputs` are those of `forward_pass`, and `grad_output` is the derivative by the outputs.
    """
    found = [grad_output]
    for (weight, _), given in zip(layers[:0:-1], inputs[len(layers) - 1 : 0 : -1], strict=True):
        grad_input = product(found[-1], weight, onednn=onednn)
        if tanh:
            found.append(torch.ops.aten.tanh_backward(grad_input, given))
        else:
            found.append(torch.ops.aten.threshold_backward(grad_input, given, 0))
    return found[::-1]


def gradient_of(
    layers: Sequence[Layer], deltas: Sequence[Tensor], inputs: Sequence[Tensor], *, onednn: bool
) -> Gradient:
    """The gradient by all weights and biases, from the `inputs` of each layer."""
    gradient: list[Tensor] = []
    for (weight, _), delta, given in zip(layers, deltas, inputs[: len(layers)], strict=True):
        # It lies in memory as the weight does, a column of an ensemble's after the other.
        if weight.is_contiguous():
            gradient.append(product(delta.t(), given, onednn=onednn))
        else:
            gradient.append(product(given.t(), delta, onednn=onednn).t())
        gradient.append(delta.sum(0))
    return tuple(gradient)


class _OneDnnLayers(torch.autograd.Function):
    """Dense layers with ReLU between them, by oneDNN, as one node of autograd's graph."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, *parameters: Tensor) -> Tensor:
        *ctx.inputs, outputs = forward_pass(_paired(parameters), rows, onednn=True)
        ctx.save_for_backward(*parameters)
        return outputs

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor | None, ...]:
        by_rows, by_weights, *_ = ctx.needs_input_grad
        layers = _paired(ctx.saved_tensors)
        found = deltas(layers, ctx.inputs, grad_output, onednn=True)
        grad_rows = product(found[0], layers[0].weight, onednn=True) if by_rows else None
        if not by_weights:
            return grad_rows, *(None,) * len(ctx.saved_tensors)
        return grad_rows, *gradient_of(layers, found, ctx.inputs, onednn=True)


def _paired(parameters: Sequence[Tensor]) -> list[Layer]:
    return [Layer(*pair) for pair in zip(parameters[::2], parameters[1::2], strict=True)]


def onednn_layers(layers: Sequence[Layer], rows: Tensor) -> Tensor:
    """Dense layers with ReLU between them, with autograd. [B, inputs] -> [B, outputs]

    Of the weights and biases all have a gradient, or none.
    """
    parameters = [each for layer in layers for each in layer]
    result: Tensor = _OneDnnLayers.apply(rows, *parameters)  # type: ignore[no-untyped-call]
    return result


def linear(rows: Tensor, weight: Tensor, bias: Tensor, *, onednn: bool) -> Tensor:
    """[..., inputs], [outputs, inputs], [outputs] -> [..., outputs], with autograd."""
    if onednn:
        flat = rows.flatten(0, -2)
        if suits_onednn(flat, weight.t()):
            result = onednn_layers([Layer(weight, bias)], flat)
            return result.view(*rows.shape[:-1], len(weight))
    return F.linear(rows, weight, bias)


class Dense(nn.Module):
    """`nn.Linear`, initialised as that is, U(-k, k) with k = inputs**-0.5, but from a generator.

    Torch's global generator is neither needed nor moved. `bound` replaces k.
    """

    def __init__(
        self,
        inputs: int,
        outputs: int,
        generator: torch.Generator,
        *,
        onednn: bool,
        bound: float | None = None,
    ) -> None:
        super().__init__()
        self.onednn = onednn
        bound = inputs**-0.5 if bound is None else bound
        # Filled once they are registered, so that `parameters_within` counts them before.
        self.weight = nn.Parameter(torch.empty(outputs, inputs))
        self.bias = nn.Parameter(torch.empty(outputs))
        nn.init.uniform_(self.weight, -bound, bound, generator=generator)
        nn.init.uniform_(self.bias, -bound, bound, generator=generator)

    def forward(self, rows: Tensor) -> Tensor:
        return linear(rows, self.weight, self.bias, onednn=self.onednn)


class NoisyDense(Dense):
    """y = (mu_w + sigma_w * eps_w) x + mu_b + sigma_b * eps_b, with eps_w = f(eps_out) f(eps_in)^T.

    Fortunato et al. 2018, "Noisy networks for exploration". The means begin as the weights of
    `Dense`, which are the paper's, and every sigma as `std * inputs**-0.5`.
    """

    def __init__(
        self, inputs: int, outputs: int, generator: torch.Generator, *, std: float, **rest: Any
    ) -> None:
        super().__init__(inputs, outputs, generator, **rest)
        self.weight_std = nn.Parameter(torch.full((outputs, inputs), std * inputs**-0.5))
        self.bias_std = nn.Parameter(torch.full((outputs,), std * inputs**-0.5))

    def forward(self, rows: Tensor, noise: Tensor | None = None) -> Tensor:
        """`noise` [inputs + outputs] is f of normal numbers; without it the weights are means."""
        if noise is None:
            return super().forward(rows)
        outputs, inputs = self.weight.shape
        by_input, by_output = noise.split_with_sizes((inputs, outputs))
        weight = torch.addcmul(self.weight, self.weight_std, torch.outer(by_output, by_input))
        bias = torch.addcmul(self.bias, self.bias_std, by_output)
        return linear(rows, weight, bias, onednn=self.onednn)


class Mlp(nn.Module):
    """Hidden layers of these `sizes`, the first that of the rows, and a linear one of `outputs`.

    With `layer_norm` each hidden layer is normalised before its activation (Ba, Kiros and Hinton
    2016, "Layer normalization"). `final_bound` draws the last layer from U(-bound, bound), as the
    papers on deterministic policies do; with `noisy_std` all layers are noisy. `outputs` None: all
    layers are hidden. `NumpyMlp` is its twin.
    """

    def __init__(
        self,
        architecture: Architecture,
        sizes: Sequence[int],
        outputs: int | None,
        generator: torch.Generator,
        *,
        final_bound: float | None = None,
        noisy_std: float | None = None,
    ) -> None:
        super().__init__()
        self.onednn = uses_onednn(architecture)
        make: Callable[..., Dense] = Dense
        if noisy_std is not None:
            make = partial(NoisyDense, std=noisy_std)
        layers = [make(*pair, generator, onednn=self.onednn) for pair in pairwise(sizes)]
        self._hidden = len(layers)
        if outputs is not None:
            make = make if final_bound is None else partial(make, bound=final_bound)
            layers.append(make(sizes[-1], outputs, generator, onednn=self.onednn))
        self.layers = nn.ModuleList(layers)
        self.norms = nn.ModuleList(
            nn.LayerNorm(size) for size in (sizes[1:] if architecture.layer_norm else ())
        )
        self._activate = ACTIVATIONS[architecture.activation]
        self.tanh = architecture.activation == Activation.tanh
        relu = architecture.activation == Activation.relu
        bare = not architecture.layer_norm and noisy_std is None and outputs is not None
        self.plain = bare and (relu or self.tanh)  # as `forward_pass` has it
        self._fused = bare and relu and self.onednn
        self.memory = tuple(Layer(each.weight, each.bias) for each in layers)

    def forward(self, rows: Tensor, noises: Sequence[Tensor] = ()) -> Tensor:
        """[B, inputs] -> [B, outputs]; `noises` of one noisy layer after the other."""
        if (
            self._fused
            and rows.dim() == 2
            and any(suits_onednn(rows, w.t()) for w, _ in self.memory)
        ):
            return onednn_layers(self.memory, rows)
        rows = self.trunk(rows, noises)
        last = self._hidden
        return rows if last == len(self.layers) else self.layers[last](rows, *noises[last:])

    def trunk(self, rows: Tensor, noises: Sequence[Tensor] = ()) -> Tensor:
        """The last hidden layer. [B, inputs] -> [B, last hidden]"""
        for i in range(self._hidden):
            rows = self.layers[i](rows, *noises[i : i + 1])
            if self.norms:
                rows = self.norms[i](rows)
            rows = self._activate(rows)
        return rows
