"""Several networks of one form at once: every layer is one batched product.

Two critics cost little more than one, ten (Chen et al. 2021, "Randomized ensembled double
Q-learning: learning fast without a model") far less than ten.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
import torch.nn.functional as F  # noqa: N812 - as all of torch's users call it
from torch import Tensor, nn

from border_cli.nn.architecture import Architecture
from border_cli.nn.features import FeatureTensors, Torso
from border_cli.nn.mlp import ACTIVATIONS

NORM_EPSILON = 1e-5  # of torch's LayerNorm


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
    ) -> None:
        super().__init__()
        self.weights, self.biases = nn.ParameterList(), nn.ParameterList()
        for inputs, outputs in pairwise(sizes):
            bound = inputs**-0.5
            weight = torch.empty(members, inputs, outputs)
            bias = torch.empty(members, 1, outputs)
            self.weights.append(weight.uniform_(-bound, bound, generator=generator))
            self.biases.append(bias.uniform_(-bound, bound, generator=generator))
        self.scales, self.shifts = nn.ParameterList(), nn.ParameterList()
        for size in sizes[1:-1] if architecture.layer_norm else ():
            self.scales.append(torch.ones(members, 1, size))
            self.shifts.append(torch.zeros(members, 1, size))
        self._members = members
        self._activate = ACTIVATIONS[architecture.activation]
        self._dropout = dropout

    def forward(self, rows: Tensor, noise: torch.Generator | None = None) -> Tensor:
        """[B, inputs], or [E, B, inputs] where each has its own -> [E, B, outputs].

        Where there is dropout, `noise` says what is dropped; without it nothing is.
        """
        hidden = rows if rows.dim() == 3 else rows.expand(self._members, *rows.shape)
        last = len(self.weights) - 1
        for i, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            hidden = torch.baddbmm(bias, hidden, weight)
            if i == last:
                break
            if self._dropout and noise is not None:
                hidden = hidden * self._kept(hidden, noise)
            if self.scales:
                hidden = F.layer_norm(hidden, hidden.shape[-1:], eps=NORM_EPSILON)
                hidden = torch.addcmul(self.shifts[i], hidden, self.scales[i])
            hidden = self._activate(hidden)
        return hidden

    def _kept(self, hidden: Tensor, noise: torch.Generator) -> Tensor:
        share = 1 - self._dropout
        mask = torch.empty(hidden.shape).bernoulli_(share, generator=noise)  # [E, B, hidden]
        return mask.div_(share).to(hidden.device)


class Critics(nn.Module):
    """E action values, or E sets of quantiles of them: Q_i(s, a). Image networks are their own."""

    def __init__(
        self,
        architecture: Architecture,
        action_size: int,
        members: int,
        generator: torch.Generator,
        *,
        outputs: int = 1,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        convolves = bool(architecture.images)
        self.torsos = nn.ModuleList(
            Torso(architecture, generator) for _ in range(members if convolves else 0)
        )
        size = int(self.torsos[0].size) if convolves else architecture.row_size  # type: ignore[arg-type]
        self.mlp = EnsembleMlp(
            members,
            [size + action_size, *architecture.hidden, outputs],
            generator,
            architecture,
            dropout=dropout,
        )

    def forward(
        self, features: FeatureTensors, action: Tensor, noise: torch.Generator | None = None
    ) -> Tensor:
        """features, action [B, A] -> [E, B, outputs]"""
        if not self.torsos:
            assert isinstance(features, Tensor)
            return self.mlp(torch.cat((features, action), dim=1), noise)  # type: ignore[no-any-return]
        rows = torch.stack([torso(features) for torso in self.torsos])  # [E, B, size]
        actions = action.expand(len(self.torsos), *action.shape)
        return self.mlp(torch.cat((rows, actions), dim=2), noise)  # type: ignore[no-any-return]
