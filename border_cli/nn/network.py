"""A network of an agent: from features to as many numbers as are asked for."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import TypeVar

import torch
from torch import Tensor, nn

from border_cli.nn.architecture import Architecture
from border_cli.nn.features import FeatureTensors, Torso
from border_cli.nn.mlp import Mlp

M = TypeVar("M", bound=nn.Module)


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
        )

    def forward(self, features: FeatureTensors) -> Tensor:
        result: Tensor = self.mlp(self.torso(features))  # [B, outputs]
        return result


def target_of(network: M) -> M:
    """A copy that no gradient changes, for targets that follow by `follow`."""
    return copy.deepcopy(network).requires_grad_(False)


def without_gradient(network: M) -> M:
    """The same network in the same memory, through which gradients flow to its inputs only.

    What an actor climbs: the critic's weights are constants there, and no product is spent on
    their gradient. Make it after the network is on its device.
    """
    twin = copy.deepcopy(network).requires_grad_(False)
    for mine, its in zip(twin.parameters(), network.parameters(), strict=True):
        mine.data = its.data
    for copied, shared in zip(twin.buffers(), network.buffers(), strict=True):
        copied.data = shared.data
    return twin


def follow(target: Iterable[Tensor], online: Iterable[Tensor], tau: float) -> None:
    """target := tau online + (1 - tau) target. At 1 it copies.

    Lillicrap et al. 2016, "Continuous control with deep reinforcement learning", Algorithm 1.
    """
    if tau == 1:
        torch._foreach_copy_(list(target), list(online))
    else:
        torch._foreach_lerp_(list(target), list(online), tau)
