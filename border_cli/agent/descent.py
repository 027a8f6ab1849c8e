"""From what networks put out to the gradient of their weights, whatever the formula between them.

A formula gives the slope of its loss by the outputs in closed form; the way from there to the
weights is written out for dense layers with ReLU, and autograd's for everything else.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import torch
from torch import Tensor, nn

from border_cli.nn.network import Gradient, Layer, backward, forward
from border_cli.nn.tensor_batch import TensorBatch


class Spread(NamedTuple):
    """A distribution of the return for each row, wherever its mass stands."""

    positions: Tensor  # [B, N]
    probabilities: Tensor  # [B, N]


class Found(NamedTuple):
    """What one batch says about what the online network put out."""

    slope: Tensor  # [B, outputs]  derivative of the loss by the outputs
    loss: Tensor  # []  without the conservative part
    q_mean: Tensor  # []  mean of Q(s, a)
    error: Tensor  # [B, 1]  y - Q(s, a); of distributions how far they are apart
    gap: Tensor | None = None  # []  mean of logsumexp Q(s, ·) - Q(s, a), where it is weighted
    spread: Spread | None = None  # of the targets of atoms, before they were projected


class Formula(Protocol):
    """From outputs for s of the online network, for s' of the target network, and for s' of the
    online network where that chooses the next action; all [B, outputs]."""

    def __call__(
        self, outputs: Tensor, next_outputs: Tensor, chooser: Tensor | None, batch: TensorBatch
    ) -> Found: ...


def of_action(values: Tensor, action: Tensor) -> Tensor:
    """[B, num_actions, N], [B, 1] -> [B, N]"""
    return values.gather(1, index_of(action, values.shape[2])).squeeze(1)


def index_of(action: Tensor, count: int) -> Tensor:
    """Where the `count` numbers of an action are. [B, 1] -> [B, 1, N]"""
    return action[:, :, None].expand(-1, 1, count)


def descent(
    online: Sequence[Layer],
    target: Sequence[Layer],
    batch: TensorBatch,
    *,
    formula: Formula,
    double: bool,
) -> tuple[Gradient, Found]:
    """The gradient of the loss by all weights of dense layers with ReLU, written out."""
    assert isinstance(batch.obs, Tensor)
    assert isinstance(batch.next_obs, Tensor)
    given = forward(online, batch.obs)
    next_outputs = forward(target, batch.next_obs)[-1]
    chooser = forward(online, batch.next_obs)[-1] if double else None
    found = formula(given[-1], next_outputs, chooser, batch)
    return backward(online, given, found.slope), found


def descent_by_autograd(
    online: nn.Module,
    target: nn.Module,
    batch: TensorBatch,
    noise: Tensor | None,
    *,
    formula: Formula,
    double: bool,
) -> tuple[Tensor, Found]:
    """The same for any network up to its outputs, from which autograd finds the way back.

    Each of the passes has its own noise, where there is any. [3, draws]
    """

    def outputs_of(network: nn.Module, features: object, which: int) -> Tensor:
        result: Tensor = network(features) if noise is None else network(features, noise[which])
        return result

    outputs = outputs_of(online, batch.obs, 0)
    with torch.no_grad():
        next_outputs = outputs_of(target, batch.next_obs, 1)
        chooser = outputs_of(online, batch.next_obs, 2) if double else None
        found = formula(outputs.detach(), next_outputs, chooser, batch)
    return outputs, found
