"""Ensembles of networks with one architecture: every layer is one batched product.

Two critics cost little more than one, and ten (Chen et al. 2021, "Randomized ensembled double
Q-learning: learning fast without a model") far less than ten times as much.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 - as all of torch's users call it
from torch import Tensor, nn

from border_cli.nn.architecture import LAYER_NORM_EPSILON, Architecture
from border_cli.nn.dense import ACTIVATIONS, Layer, onednn_layers
from border_cli.nn.features import FeatureTensors
from border_cli.nn.initial_weights import fill_uniform
from border_cli.nn.matmul import suits_onednn, uses_onednn
from border_cli.nn.network import copy_with, torso_of
from border_cli.settings.networks import Activation


class EnsembleMlp(nn.Module):
    """E stacks of dense layers of `sizes`, from inputs to outputs, initialised like `nn.Linear`.

    Dropout, layer norm and activation follow each hidden layer, in the order of Hiraoka et al.
    2022, "Dropout Q-functions for doubly efficient reinforcement learning", Figure 1.
    """

    def __init__(
        self,
        members: int,
        sizes: Sequence[int],
        rng: np.random.Generator,
        architecture: Architecture,
        *,
        dropout: float = 0.0,
        final_bound: float | None = None,
    ) -> None:
        """See `Mlp` for `final_bound`."""
        super().__init__()
        self.weights, self.biases = nn.ParameterList(), nn.ParameterList()
        for i, (inputs, outputs) in enumerate(pairwise(sizes)):
            last = i == len(sizes) - 2
            bound = final_bound if last and final_bound is not None else inputs**-0.5
            # Filled after registration, as in `Dense`.
            self.weights.append(torch.empty(members, inputs, outputs))
            self.biases.append(torch.empty(members, 1, outputs))
            fill_uniform(self.weights[i].detach().numpy(), bound, rng)
            fill_uniform(self.biases[i].detach().numpy(), bound, rng)
        self.scales, self.shifts = nn.ParameterList(), nn.ParameterList()
        for size in sizes[1:-1] if architecture.layer_norm else ():
            self.scales.append(torch.ones(members, 1, size))
            self.shifts.append(torch.zeros(members, 1, size))
        self.members = members
        self._onednn = uses_onednn(architecture)
        relu = architecture.activation == Activation.relu and not architecture.layer_norm
        self._fused = self._onednn and relu
        self._activate = ACTIVATIONS[architecture.activation]
        self._dropout = dropout

    def forward(
        self,
        rows: Tensor,
        dropout_masks: Sequence[Tensor] | None = None,
        members: Tensor | None = None,
    ) -> Tensor:
        """[B, inputs], or [E, B, inputs] with separate rows for each member -> [E, B, outputs].

        `dropout_masks` multiply the hidden layers; None means no dropout. `members` [K] are the
        members to evaluate; None means all.
        """
        count = self.members if members is None else len(members)
        hidden = rows if rows.dim() == 3 else rows.expand(count, *rows.shape)
        weights, biases = (
            [_pick(matrix, members) for matrix in group] for group in (self.weights, self.biases)
        )
        if (
            self._fused
            and dropout_masks is None
            and any(suits_onednn(hidden[0], w[0]) for w in weights)
        ):
            return self._apply_onednn(hidden, weights, biases)
        for i, (weight, bias) in enumerate(zip(weights, biases, strict=True)):
            hidden = self._apply_layer(hidden, weight, bias)
            if i == len(weights) - 1:
                break
            if dropout_masks is not None:
                hidden = hidden * _pick(dropout_masks[i], members)
            if self.scales:
                hidden = F.layer_norm(hidden, hidden.shape[-1:], eps=LAYER_NORM_EPSILON)
                scale, shift = _pick(self.scales[i], members), _pick(self.shifts[i], members)
                hidden = torch.addcmul(shift, hidden, scale)
            hidden = self._activate(hidden)
        return hidden

    def _apply_layer(self, rows: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        """Applies one layer to all members. [E, B, inputs] -> [E, B, outputs]"""
        if self._onednn and suits_onednn(rows[0], weight[0]):
            return self._apply_onednn(rows, [weight], [bias])
        # Added in place: torch.baddbmm first copies the bias to every row, 5 % of its time.
        return torch.bmm(rows, weight).add_(bias)

    def _apply_onednn(
        self, rows: Tensor, weights: Sequence[Tensor], biases: Sequence[Tensor]
    ) -> Tensor:
        """Evaluates one member after the other: on AMD, two of oneDNN's products take half the time
        of MKL's batched one."""
        # Unbound before transposing, so that the stacked gradient has the layout of the weights.
        layers = [
            [Layer(matrix.t(), vector) for matrix, vector in zip(weight, bias[:, 0], strict=True)]
            for weight, bias in zip(weights, biases, strict=True)
        ]
        members = zip(rows, zip(*layers, strict=True), strict=True)
        return torch.stack([onednn_layers(stack, inputs) for inputs, stack in members])

    def dropout_masks(self, rows: int, generator: torch.Generator) -> list[Tensor]:
        """Draws the dropout masks for `rows` rows: entries are 0, or 1 / (1 - dropout).

        [E, B, hidden] for each hidden layer, on the CPU.
        """
        return [
            _draw_mask((self.members, rows, weight.shape[2]), self._dropout, generator)
            for weight in self.weights[:-1]
        ]


def _pick(parameter: Tensor, members: Tensor | None) -> Tensor:
    """Returns the parameter of these members; None means all."""
    return parameter if members is None else parameter.index_select(0, members)


def _draw_mask(shape: tuple[int, ...], probability: float, generator: torch.Generator) -> Tensor:
    """Draws a mask with zeros of this probability; `bernoulli_` takes 1.5 times as long."""
    return (torch.rand(shape, generator=generator) >= probability).float().div_(1 - probability)


class Critics(nn.Module):
    """E critics with separate encoders; each outputs Q_i(s, a), or a set of its quantiles."""

    def __init__(
        self,
        architecture: Architecture,
        action_size: int,
        members: int,
        rng: np.random.Generator,
        *,
        outputs: int = 1,
        dropout: float = 0.0,
        final_bound: float | None = None,
    ) -> None:
        super().__init__()
        encodes = architecture.has_encoder
        self.torsos = nn.ModuleList(
            torso_of(architecture, rng) for _ in range(members if encodes else 0)
        )
        size = int(self.torsos[0].size) if encodes else architecture.row_size  # type: ignore[arg-type]
        self.mlp = EnsembleMlp(
            members,
            [size + action_size, *architecture.hidden, outputs],
            rng,
            architecture,
            dropout=dropout,
            final_bound=final_bound,
        )

    def first_critic(self) -> Critics:
        """Returns the first critic in the same memory, with gradients for its inputs only.

        Call it after the critics were moved to their device.
        """
        alone = copy_with(
            self,
            {
                parameter: parameter[:1] if name.startswith("mlp.") else parameter
                for name, parameter in self.named_parameters()
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
        """features, action [B, A] -> [E, B, outputs]; other arguments as in `EnsembleMlp`."""
        if not self.torsos:
            assert isinstance(features, Tensor)
            return self.mlp(torch.cat((features, action), dim=1), dropout_masks, members)  # type: ignore[no-any-return]
        rows = _pick(torch.stack([torso(features) for torso in self.torsos]), members)  # [E, B, F]
        actions = action.expand(len(rows), *action.shape)
        return self.mlp(torch.cat((rows, actions), dim=2), dropout_masks, members)  # type: ignore[no-any-return]
