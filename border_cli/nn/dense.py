"""Dense layers in torch, which may be normalised or noisy; products by torch or by oneDNN."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 - as all of torch's users call it
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from border_cli.nn.architecture import Architecture
from border_cli.nn.initial_weights import fill_uniform
from border_cli.nn.matmul import product, suits_onednn, uses_onednn
from border_cli.settings.networks import Activation

# In place except for SiLU, whose gradient needs the input of the activation.
ACTIVATIONS = {
    Activation.relu: torch.relu_,
    Activation.tanh: torch.tanh_,
    Activation.elu: F.elu_,
    Activation.silu: F.silu,
}


class Layer(NamedTuple):
    """Weight and bias of a dense layer, which share memory with its parameters."""

    weight: Tensor  # [outputs, inputs]
    bias: Tensor  # [outputs]


class _OneDnnLayers(torch.autograd.Function):
    """Dense layers with ReLU between them, computed by oneDNN as one node of the autograd graph."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, *parameters: Tensor) -> Tensor:
        *hidden, last = _pair_parameters(parameters)
        ctx.inputs = [rows]  # of each layer
        for weight, bias in hidden:
            ctx.inputs.append(product(ctx.inputs[-1], weight.t(), bias, "relu", onednn=True))
        ctx.save_for_backward(*parameters)
        return product(ctx.inputs[-1], last.weight.t(), last.bias, onednn=True)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor | None, ...]:
        needs_rows, needs_weights, *_ = ctx.needs_input_grad
        gradients: list[Tensor | None] = []
        delta = grad_output  # gradient with respect to a layer's outputs before ReLU
        layers = _pair_parameters(ctx.saved_tensors)
        for i in reversed(range(len(layers))):
            weight = layers[i].weight
            if needs_weights:
                gradients = [
                    _weight_gradient(weight, delta, ctx.inputs[i]),
                    delta.sum(0),
                    *gradients,
                ]
            if i:
                grad_input = product(delta, weight, onednn=True)
                delta = torch.ops.aten.threshold_backward(grad_input, ctx.inputs[i], 0)
        grad_rows = product(delta, layers[0].weight, onednn=True) if needs_rows else None
        return grad_rows, *(gradients or [None] * len(ctx.saved_tensors))


def _weight_gradient(weight: Tensor, delta: Tensor, layer_input: Tensor) -> Tensor:
    """Returns the gradient in the layout of the weight, which is column-major in an ensemble."""
    if weight.is_contiguous():
        return product(delta.t(), layer_input, onednn=True)
    return product(layer_input.t(), delta, onednn=True).t()


def _pair_parameters(parameters: Sequence[Tensor]) -> list[Layer]:
    return [Layer(*pair) for pair in zip(parameters[::2], parameters[1::2], strict=True)]


def onednn_layers(layers: Sequence[Layer], rows: Tensor) -> Tensor:
    """Applies dense layers with ReLU between them, with autograd. [B, inputs] -> [B, outputs]

    Either all weights and biases require a gradient, or none do.
    """
    parameters = [parameter for layer in layers for parameter in layer]
    result: Tensor = _OneDnnLayers.apply(rows, *parameters)  # type: ignore[no-untyped-call]
    return result


def linear(rows: Tensor, weight: Tensor, bias: Tensor, *, onednn: bool) -> Tensor:
    """Applies a dense layer. [..., inputs], [outputs, inputs], [outputs] -> [..., outputs]"""
    if onednn:
        flat = rows.flatten(0, -2)
        if suits_onednn(flat, weight.t()):
            result = onednn_layers([Layer(weight, bias)], flat)
            return result.view(*rows.shape[:-1], len(weight))
    return F.linear(rows, weight, bias)


class Dense(nn.Module):
    """`nn.Linear` with the same initialisation, U(-k, k) with k = inputs**-0.5, drawn by numpy.

    `bound` replaces k.
    """

    def __init__(
        self,
        inputs: int,
        outputs: int,
        rng: np.random.Generator,
        *,
        onednn: bool,
        bound: float | None = None,
    ) -> None:
        super().__init__()
        self.onednn = onednn
        bound = inputs**-0.5 if bound is None else bound
        # Filled after registration, so that `parameters_within` counts them first.
        self.weight = nn.Parameter(torch.empty(outputs, inputs))
        self.bias = nn.Parameter(torch.empty(outputs))
        fill_uniform(self.weight.detach().numpy(), bound, rng)
        fill_uniform(self.bias.detach().numpy(), bound, rng)

    def forward(self, rows: Tensor) -> Tensor:
        return linear(rows, self.weight, self.bias, onednn=self.onednn)


class NoisyDense(Dense):
    """y = (mu_w + sigma_w * eps_w) x + mu_b + sigma_b * eps_b, with eps_w = f(eps_out) f(eps_in)^T.

    Fortunato et al. 2018, "Noisy networks for exploration". The means are initialised like the
    weights of `Dense`, as in the paper, and every sigma to `std * inputs**-0.5`.
    """

    def __init__(
        self, inputs: int, outputs: int, rng: np.random.Generator, *, std: float, **rest: Any
    ) -> None:
        super().__init__(inputs, outputs, rng, **rest)
        self.weight_std = nn.Parameter(torch.full((outputs, inputs), std * inputs**-0.5))
        self.bias_std = nn.Parameter(torch.full((outputs,), std * inputs**-0.5))

    def forward(self, rows: Tensor, noise: Tensor | None = None) -> Tensor:
        """`noise` [inputs + outputs] is f of standard normal numbers; None means no noise."""
        if noise is None:
            return super().forward(rows)
        outputs, inputs = self.weight.shape
        input_noise, output_noise = noise.split_with_sizes((inputs, outputs))
        weight = torch.addcmul(self.weight, self.weight_std, torch.outer(output_noise, input_noise))
        bias = torch.addcmul(self.bias, self.bias_std, output_noise)
        return linear(rows, weight, bias, onednn=self.onednn)


class Mlp(nn.Module):
    """Dense layers of `sizes`, beginning with that of the inputs, and a linear layer of `outputs`.

    With `layer_norm`, hidden layers are normalised before the activation (Ba, Kiros and Hinton
    2016, "Layer normalization"). `final_bound` draws the last layer from U(-bound, bound), as in
    papers on deterministic policies. With `noisy_std`, all layers are noisy. If `outputs` is None,
    all layers are hidden. `NumpyMlp` is the numpy counterpart.
    """

    def __init__(
        self,
        architecture: Architecture,
        sizes: Sequence[int],
        outputs: int | None,
        rng: np.random.Generator,
        *,
        final_bound: float | None = None,
        noisy_std: float | None = None,
    ) -> None:
        super().__init__()
        self.onednn = uses_onednn(architecture)
        make: Callable[..., Dense] = Dense
        if noisy_std is not None:
            make = partial(NoisyDense, std=noisy_std)
        layers = [make(*pair, rng, onednn=self.onednn) for pair in pairwise(sizes)]
        self._hidden = len(layers)
        if outputs is not None:
            make = make if final_bound is None else partial(make, bound=final_bound)
            layers.append(make(sizes[-1], outputs, rng, onednn=self.onednn))
        self.layers = nn.ModuleList(layers)
        self.norms = nn.ModuleList(
            nn.LayerNorm(size) for size in (sizes[1:] if architecture.layer_norm else ())
        )
        self._activate = ACTIVATIONS[architecture.activation]
        relu = architecture.activation == Activation.relu
        is_bare = not architecture.layer_norm and noisy_std is None and outputs is not None
        self._fused = is_bare and relu and self.onednn
        self.memory = tuple(Layer(layer.weight, layer.bias) for layer in layers)

    def forward(self, rows: Tensor, noises: Sequence[Tensor] = ()) -> Tensor:
        """[B, inputs] -> [B, outputs]; `noises` contains the noise of each noisy layer."""
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
        """Returns the outputs of the last hidden layer. [B, inputs] -> [B, last hidden]"""
        for i in range(self._hidden):
            rows = self.layers[i](rows, *noises[i : i + 1])
            if self.norms:
                rows = self.norms[i](rows)
            rows = self._activate(rows)
        return rows
