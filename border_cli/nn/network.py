"""Dense networks: layers, a network of an agent, forward and backward pass, target copies.

The backward pass through ReLU is written out, without autograd, whose bookkeeping costs more in
networks this small than the pass itself: an update of [256, 256] and 64 rows takes 1.4 times as
long with it. Networks of images and those of users are imported by the `Torso` that has one.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, TypeAlias, TypeVar

import torch
import torch.nn.functional as F  # noqa: N812 - as all of torch's users call it
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from border_cli.nn.architecture import Architecture
from border_cli.nn.features import FeatureTensors
from border_cli.nn.matmul import (
    TORCH,
    Layer,
    Products,
    Rows,
    TorchProducts,
    products_of,
)
from border_cli.settings.run import Activation

M = TypeVar("M", bound=nn.Module)

Gradient: TypeAlias = tuple[Tensor, ...]  # weight, bias, weight, bias, …

# In place, because what stands before an activation is not needed again where it is not SiLU.
ACTIVATIONS = {
    Activation.relu: torch.relu_,
    Activation.tanh: torch.tanh_,
    Activation.elu: F.elu_,
    Activation.silu: F.silu,
}


def forward(layers: Sequence[Layer], rows: Rows, products: Products[Rows]) -> list[Rows]:
    """The inputs of each layer, and last the outputs of the network. [B, inputs] …, [B, outputs]"""
    inputs = [rows]
    for layer in layers[:-1]:
        inputs.append(products.affine_relu(inputs[-1], layer.weight, layer.bias))
    inputs.append(products.affine(inputs[-1], layers[-1].weight, layers[-1].bias))
    return inputs


def backward(
    layers: Sequence[Layer],
    inputs: Sequence[Rows],
    grad_output: Rows,
    products: Products[Rows],
    *,
    by_weights: bool = True,
    by_rows: bool = False,
) -> tuple[Gradient, Rows | None]:
    """The gradient by all weights, and by the rows, from the layers' inputs of the forward pass.

    `grad_output` is the derivative of the loss by the outputs. [B, outputs]
    """
    gradient: list[Tensor] = []  # from the last layer to the first, bias before weight
    for depth in reversed(range(len(layers))):
        if by_weights:
            gradient.append(products.grad_bias(grad_output))
            gradient.append(products.grad_weight(grad_output, inputs[depth]))
        if depth > 0 or by_rows:
            grad_input = products.grad_input(grad_output, layers[depth].weight)  # [B, inputs]
            grad_output = products.through_relu(grad_input, inputs[depth]) if depth else grad_input
    return tuple(reversed(gradient)), grad_output if by_rows else None


class _Passed(torch.autograd.Function):
    """`forward` and `backward` as one node of autograd's graph."""

    @staticmethod
    def forward(ctx: Any, products: Products[Any], rows: Tensor, *parameters: Tensor) -> Tensor:
        *inputs, outputs = forward(_paired(parameters), products.split(rows), products)
        ctx.save_for_backward(*parameters)
        ctx.products, ctx.inputs = products, inputs
        return products.join(outputs)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor | None, ...]:
        products: Products[Any] = ctx.products
        _, by_rows, by_weights, *_ = ctx.needs_input_grad
        gradient, grad_rows = backward(
            _paired(ctx.saved_tensors),
            ctx.inputs,
            products.split(grad_output),
            products,
            by_weights=by_weights,
            by_rows=by_rows,
        )
        nothing = (None,) * len(ctx.saved_tensors)
        return None, products.join(grad_rows) if by_rows else None, *(gradient or nothing)


def _paired(parameters: Sequence[Tensor]) -> list[Layer]:
    return [Layer(*pair) for pair in zip(parameters[::2], parameters[1::2], strict=True)]


def passed(layers: Sequence[Layer], rows: Tensor, products: Products[Any]) -> Tensor:
    """Dense layers with ReLU between them, with autograd. [B, inputs] -> [B, outputs]

    Of the weights and biases all have a gradient, or none.
    """
    parameters = [each for layer in layers for each in layer]
    result: Tensor = _Passed.apply(products, rows, *parameters)  # type: ignore[no-untyped-call]
    return result


def linear(rows: Tensor, weight: Tensor, bias: Tensor, products: TorchProducts) -> Tensor:
    """[..., inputs], [outputs, inputs], [outputs] -> [..., outputs], with autograd."""
    if products is TORCH:
        return F.linear(rows, weight, bias)
    flat, layers = rows.flatten(0, -2), [Layer(weight, bias)]
    if not products.take(flat, layers):
        return F.linear(rows, weight, bias)
    return passed(layers, flat, products).view(*rows.shape[:-1], len(weight))


class Dense(nn.Module):
    """`nn.Linear`, initialised as that is, U(-k, k) with k = inputs**-0.5, but from a generator.

    Torch's global generator is neither needed nor moved. `bound` replaces k.
    """

    def __init__(
        self,
        inputs: int,
        outputs: int,
        generator: torch.Generator,
        bound: float | None = None,
        *,
        products: TorchProducts = TORCH,
    ) -> None:
        super().__init__()
        self._products = products
        bound = inputs**-0.5 if bound is None else bound
        weight = torch.empty(outputs, inputs).uniform_(-bound, bound, generator=generator)
        bias = torch.empty(outputs).uniform_(-bound, bound, generator=generator)
        self.weight = nn.Parameter(weight)
        self.bias = nn.Parameter(bias)

    def forward(self, rows: Tensor) -> Tensor:
        return linear(rows, self.weight, self.bias, self._products)


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
        products: TorchProducts = TORCH,
    ) -> None:
        super().__init__()
        last = len(sizes) - 2
        self.layers = nn.ModuleList(
            Dense(inputs, outputs, generator, final_bound if i == last else None, products=products)
            for i, (inputs, outputs) in enumerate(pairwise(sizes))
        )
        self.norms = nn.ModuleList(
            nn.LayerNorm(size) for size in (sizes[1:-1] if layer_norm else ())
        )
        self._products = products
        self._activate = ACTIVATIONS[activation]
        self.plain = activation == Activation.relu and not layer_norm  # as `backward` has it

    def forward(self, rows: Tensor) -> Tensor:
        if self.plain and self._products is not TORCH and rows.dim() == 2:
            layers = [Layer(each.weight, each.bias) for each in self._dense()]
            if self._products.take(rows, layers):
                return passed(layers, rows, self._products)
        return self.layers[-1](self.trunk(rows))  # type: ignore[no-any-return]

    def trunk(self, rows: Tensor) -> Tensor:
        """What the last layer is given. [B, inputs] -> [B, last hidden]"""
        for i, layer in enumerate(self.layers[:-1]):
            rows = layer(rows)
            if self.norms:
                rows = self.norms[i](rows)
            rows = self._activate(rows)
        return rows

    def layers_in_memory(self) -> tuple[Layer, ...]:
        """The weights where they lie now, shared and without autograd, for `forward`."""
        return tuple(Layer(each.weight.detach(), each.bias.detach()) for each in self._dense())

    def _dense(self) -> Iterator[Dense]:
        for each in self.layers:
            assert isinstance(each, Dense)  # a ModuleList does not say
            yield each


class Torso(nn.Module):
    """Features as rows: images through convolutions, the rest beside them; or all of it through a
    user's network. [B, size]"""

    def __init__(self, architecture: Architecture, generator: torch.Generator) -> None:
        super().__init__()
        self._bare = "" in architecture.images
        self.network: nn.Module | None = None
        if architecture.target is not None:
            from border_cli.nn.user_network import build_user_network

            self.network, self.size = build_user_network(architecture, generator)
            return
        self._keys = tuple(architecture.images)
        self._rows = architecture.rows is not None
        # A list, because an nn.ModuleDict refuses keys such as "values" or "a.b".
        self.images = nn.ModuleList()
        self.size = architecture.row_size
        if architecture.images:
            from border_cli.nn.images import image_networks

            networks = image_networks(architecture, generator)
            self.images.extend(networks)
            self.size += sum(each.size for each in networks)

    def forward(self, features: FeatureTensors) -> Tensor:
        if self.network is not None:
            rows: Tensor = self.network(features)
            return rows
        if not self._keys:
            assert isinstance(features, Tensor)
            return features
        if self._bare:
            result: Tensor = self.images[0](features)
            return result
        assert isinstance(features, dict)
        parts = [features[""]] if self._rows else []
        parts += [
            network(features[key]) for key, network in zip(self._keys, self.images, strict=True)
        ]
        return torch.cat(parts, dim=1)


class Network(nn.Module):
    """Convolutions where there are images, then dense layers. `NumpyNetwork` is its twin."""

    def __init__(
        self,
        architecture: Architecture,
        outputs: int,
        generator: torch.Generator,
        *,
        final_bound: float | None = None,
    ) -> None:
        super().__init__()
        self.torso = Torso(architecture, generator)
        self.mlp = Mlp(
            [self.torso.size, *architecture.hidden, outputs],
            generator,
            activation=architecture.activation,
            layer_norm=architecture.layer_norm,
            final_bound=final_bound,
            products=products_of(architecture),
        )

    def forward(self, features: FeatureTensors) -> Tensor:
        result: Tensor = self.mlp(self.torso(features))  # [B, outputs]
        return result


def target_of(network: M) -> M:
    """A copy that no gradient changes: a target network, moved by `polyak_update`."""
    return copy.deepcopy(network).requires_grad_(False)


def without_gradient(network: M) -> M:
    """The same network in the same memory, through which gradients flow to its inputs only.

    What the actor maximises: the critic's weights are constants there, and no product is spent on
    their gradient. Make it after the network is on its device.
    """
    return copied_with(network, {each: each for each in network.parameters()})


def copied_with(network: M, parameters: Mapping[Tensor, Tensor]) -> M:
    """A copy in which these stand for the parameters, in their memory and as constants.

    Buffers are shared. Torch counts changes in place once for all that share the memory.
    """
    memo: dict[int, Tensor] = {id(each): each for each in network.buffers()}
    for mine, its in parameters.items():
        memo[id(mine)] = nn.Parameter(its.detach(), requires_grad=False)
    return copy.deepcopy(network, memo)


def polyak_update(target: Iterable[Tensor], online: Iterable[Tensor], tau: float) -> None:
    """target := tau online + (1 - tau) target. At 1 it copies.

    Lillicrap et al. 2016, "Continuous control with deep reinforcement learning", Algorithm 1.
    """
    if tau == 1:
        torch._foreach_copy_(list(target), list(online))
    else:
        torch._foreach_lerp_(list(target), list(online), tau)
