"""Several networks of one form at once: every layer is one batched product.

Two critics cost little more than one, ten (Chen et al. 2021, "Randomized ensembled double
Q-learning: learning fast without a model") far less than ten.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - as all of torch's users call it
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from border_cli.nn.architecture import LAYER_NORM_EPSILON, Architecture
from border_cli.nn.dense import ACTIVATIONS, Layer, deltas, forward_pass
from border_cli.nn.features import FeatureTensors
from border_cli.nn.matmul import Products, products_of
from border_cli.nn.network import copied_with, torso_of
from border_cli.settings.networks import Activation


class EnsembleMlp(nn.Module):
    """E stacks of dense layers; `sizes` as those of `Mlp`, drawn as `nn.Linear` does.

    Between two layers come dropout, layer norm and activation, in the order of Hiraoka et al.
    2022, "Dropout Q-functions for doubly efficient reinforcement learning", Figure 1.
    """

    def __init__(
        self,
        members: int,
        sizes: Sequence[int],
        generator: torch.Generator,
        architecture: Architecture,
        *,
        dropout: float = 0.0,
        final_bound: float | None = None,
    ) -> None:
        """`final_bound` as that of `Mlp`."""
        super().__init__()
        self.weights, self.biases = nn.ParameterList(), nn.ParameterList()
        for i, (inputs, outputs) in enumerate(pairwise(sizes)):
            last = i == len(sizes) - 2
            bound = final_bound if last and final_bound is not None else inputs**-0.5
            # Filled once they are registered, as in `Dense`.
            self.weights.append(torch.empty(members, inputs, outputs))
            self.biases.append(torch.empty(members, 1, outputs))
            nn.init.uniform_(self.weights[i], -bound, bound, generator=generator)
            nn.init.uniform_(self.biases[i], -bound, bound, generator=generator)
        self.scales, self.shifts = nn.ParameterList(), nn.ParameterList()
        for size in sizes[1:-1] if architecture.layer_norm else ():
            self.scales.append(torch.ones(members, 1, size))
            self.shifts.append(torch.zeros(members, 1, size))
        self.members = members
        self._products = products_of(architecture)
        self._plain = architecture.activation == Activation.relu and not architecture.layer_norm
        self._activate = ACTIVATIONS[architecture.activation]
        self._dropout = dropout

    def forward(
        self,
        rows: Tensor,
        dropout_masks: Sequence[Tensor] | None = None,
        members: Tensor | None = None,
    ) -> Tensor:
        """[B, inputs], or [E, B, inputs] where each has its own -> [E, B, outputs].

        `dropout_masks` multiply the hidden layers; None: no dropout. `members` [K] are those that
        answer; None: all.
        """
        count = self.members if members is None else len(members)
        hidden = rows if rows.dim() == 3 else rows.expand(count, *rows.shape)
        weights, biases = (
            [_of(each, members) for each in kind] for kind in (self.weights, self.biases)
        )
        if self._plain and dropout_masks is None and self._suit(hidden, weights):
            return relu_ensemble(hidden, weights, biases, self._products)
        for i, (weight, bias) in enumerate(zip(weights, biases, strict=True)):
            hidden = self._layer(hidden, weight, bias)
            if i == len(weights) - 1:
                break
            if dropout_masks is not None:
                hidden = hidden * _of(dropout_masks[i], members)
            if self.scales:
                hidden = F.layer_norm(hidden, hidden.shape[-1:], eps=LAYER_NORM_EPSILON)
                scale, shift = _of(self.scales[i], members), _of(self.shifts[i], members)
                hidden = torch.addcmul(shift, hidden, scale)
            hidden = self._activate(hidden)
        return hidden

    def _layer(self, rows: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        """[E, B, inputs] -> [E, B, outputs]"""
        if self._suit(rows, [weight]):
            return relu_ensemble(rows, [weight], [bias], self._products)
        # Added in place: torch.baddbmm copies the bias to every row first, 5 % of its time.
        return torch.bmm(rows, weight).add_(bias)

    def _suit(self, rows: Tensor, weights: Sequence[Tensor]) -> bool:
        return any(self._products.suit(rows[0], each[0]) for each in weights)

    def dropout_masks(self, rows: int, generator: torch.Generator) -> list[Tensor]:
        """The dropout masks of one pass of `rows`: entries are 0, or 1 / (1 - dropout).

        [E, B, hidden] for each hidden layer, on the CPU.
        """
        return [
            _mask((self.members, rows, weight.shape[2]), self._dropout, generator)
            for weight in self.weights[:-1]
        ]


class _ReluEnsemble(torch.autograd.Function):
    """Dense layers with ReLU between them, of one member after the other, as one node of autograd's
    graph: on AMD two of oneDNN's products take half the time of MKL's batched one."""

    @staticmethod
    def forward(ctx: Any, products: Products, rows: Tensor, *parameters: Tensor) -> Tensor:
        networks = _networks(parameters)
        passes = [
            forward_pass(*each, products) for each in zip(networks, rows.unbind(), strict=True)
        ]
        ctx.inputs = [each[:-1] for each in passes]
        ctx.save_for_backward(*parameters)
        ctx.products = products
        return torch.stack([each[-1] for each in passes])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor | None, ...]:
        _, by_rows, by_weights, *_ = ctx.needs_input_grad
        networks, product = _networks(ctx.saved_tensors), ctx.products.product
        each = zip(networks, ctx.inputs, grad_output.contiguous().unbind(), strict=True)
        found = [deltas(*one, ctx.products) for one in each]
        grad_rows = None
        if by_rows:
            firsts = zip(found, networks, strict=True)
            grad_rows = torch.stack([product(each[0], layers[0].weight) for each, layers in firsts])
        if not by_weights:
            return None, grad_rows, *(None,) * len(ctx.saved_tensors)
        gradient: list[Tensor] = []
        for rows, sums in zip(zip(*ctx.inputs, strict=True), zip(*found, strict=True), strict=True):
            pairs = zip(rows, sums, strict=True)
            gradient.append(torch.stack([product(each.t(), delta) for each, delta in pairs]))
            gradient.append(torch.stack([delta.sum(0, keepdim=True) for delta in sums]))
        return None, grad_rows, *gradient


def _networks(parameters: Sequence[Tensor]) -> list[list[Layer]]:
    """The layers of each member."""
    pairs = zip(parameters[::2], parameters[1::2], strict=True)
    layers = [
        [Layer(each.t(), its[0]) for each, its in zip(weight.unbind(), bias.unbind(), strict=True)]
        for weight, bias in pairs
    ]
    return [list(each) for each in zip(*layers, strict=True)]


def relu_ensemble(
    rows: Tensor, weights: Sequence[Tensor], biases: Sequence[Tensor], products: Products
) -> Tensor:
    """Dense layers with ReLU between them, with autograd. [E, B, inputs] -> [E, B, outputs]"""
    parameters = [each for layer in zip(weights, biases, strict=True) for each in layer]
    result: Tensor = _ReluEnsemble.apply(products, rows, *parameters)  # type: ignore[no-untyped-call]
    return result


def _of(parameter: Tensor, members: Tensor | None) -> Tensor:
    """Of all members, or of these."""
    return parameter if members is None else parameter.index_select(0, members)


def _mask(shape: tuple[int, ...], share: float, generator: torch.Generator) -> Tensor:
    """Zeros for this share of the entries; `bernoulli_` would take half as long again."""
    return (torch.rand(shape, generator=generator) >= share).float().div_(1 - share)


class Critics(nn.Module):
    """E action values, or E sets of quantiles of them: Q_i(s, a). Encoders are their own."""

    def __init__(
        self,
        architecture: Architecture,
        action_size: int,
        members: int,
        generator: torch.Generator,
        *,
        outputs: int = 1,
        dropout: float = 0.0,
        final_bound: float | None = None,
    ) -> None:
        super().__init__()
        encodes = architecture.has_encoder
        self.torsos = nn.ModuleList(
            torso_of(architecture, generator) for _ in range(members if encodes else 0)
        )
        size = int(self.torsos[0].size) if encodes else architecture.row_size  # type: ignore[arg-type]
        self.mlp = EnsembleMlp(
            members,
            [size + action_size, *architecture.hidden, outputs],
            generator,
            architecture,
            dropout=dropout,
            final_bound=final_bound,
        )

    def first_critic(self) -> Critics:
        """The first critic alone, in the same memory and as a constant, as `without_gradient`.

        Make it after the critics are on their device.
        """
        alone = copied_with(
            self,
            {
                each: each[:1] if name.startswith("mlp.") else each
                for name, each in self.named_parameters()
            },
        )
        alone.torsos, alone.mlp.members = alone.torsos[:1], 1
        return alone

    def forward(
        self,
        features: FeatureTensors,
        action: Tensor,
        dropout_masks: Sequence[Tensor] | None = None,
        members: Tensor | None = None,
    ) -> Tensor:
        """features, action [B, A] -> [E, B, outputs]; the rest as of `EnsembleMlp`."""
        if not self.torsos:
            assert isinstance(features, Tensor)
            return self.mlp(torch.cat((features, action), dim=1), dropout_masks, members)  # type: ignore[no-any-return]
        rows = _of(torch.stack([torso(features) for torso in self.torsos]), members)  # [E, B, size]
        actions = action.expand(len(rows), *action.shape)
        return self.mlp(torch.cat((rows, actions), dim=2), dropout_masks, members)  # type: ignore[no-any-return]
