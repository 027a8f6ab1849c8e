"""Networks of agents in torch: construction, gradients and copies."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any, Self, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from border_cli.nn.architecture import Architecture
from border_cli.nn.dense import Mlp
from border_cli.nn.features import FeatureTensors, Torso

M = TypeVar("M", bound=nn.Module)


def torso_of(architecture: Architecture, rng: np.random.Generator) -> Torso:
    """Builds a user's network, or convolutions if there are images."""
    if architecture.target is not None:
        from border_cli.nn.user_network import UserTorso

        return UserTorso(architecture, rng)
    if architecture.images:
        from border_cli.nn.images import ImageTorso

        return ImageTorso(architecture, rng)
    return Torso(architecture.row_size)


class LearnedModule(nn.Module):
    """A module that backpropagates a gradient with respect to its outputs, by autograd."""

    @torch.no_grad()
    def predict(self, *inputs: Any) -> Tensor:
        """Returns the outputs without gradients. [B, …] -> [B, outputs]"""
        outputs: Tensor = self(*inputs)
        return outputs

    def forward_with_cache(self, *inputs: Any) -> tuple[Tensor, Tensor]:
        """Returns the outputs, detached, and with their graph, for `backward`."""
        outputs: Tensor = self(*inputs)
        return outputs.detach(), outputs

    def backward(self, cache: Tensor, grad_output: Tensor) -> tuple[Tensor, ...]:
        """Returns the gradient with respect to all trainable parameters."""
        return torch.autograd.grad(cache, self._leaves, grad_output)

    def make_target(self) -> Self:
        """Returns a copy without gradients."""
        return target_of(self)

    def move_towards(self, online: Self, tau: float) -> None:
        """See `polyak_update`."""
        polyak_update(self.parameters(), online.parameters(), tau)

    @cached_property
    def _leaves(self) -> list[nn.Parameter]:
        return [leaf for leaf in self.parameters() if leaf.requires_grad]


class Network(LearnedModule):
    """Convolutions if there are images, then dense layers; `NumpyNetwork` is the counterpart."""

    def __init__(
        self,
        architecture: Architecture,
        outputs: int,
        rng: np.random.Generator,
        *,
        final_bound: float | None = None,
    ) -> None:
        super().__init__()
        self.torso = torso_of(architecture, rng)
        sizes = [self.torso.size, *architecture.hidden]
        self.mlp = Mlp(architecture, sizes, outputs, rng, final_bound=final_bound)

    def forward(self, features: FeatureTensors) -> Tensor:
        result: Tensor = self.mlp(self.torso(features))  # [B, outputs]
        return result

    def forward_with_hidden(self, features: FeatureTensors) -> tuple[Tensor, Tensor, Tensor]:
        """See `DenseLearnedNetwork.forward_with_hidden` in `nn/backend.py`."""
        hidden = self.mlp.trunk(self.torso(features))
        outputs = self.mlp.layers[-1](hidden)
        return outputs.detach(), hidden.detach(), outputs


def target_of(network: M) -> M:
    """Returns a copy without gradients: a target network, updated by `polyak_update`."""
    return copy.deepcopy(network).requires_grad_(False)


def without_gradient(network: M) -> M:
    """Returns a network that shares memory with this one, with gradients for its inputs only.

    An actor maximises it: the critic's weights are constants, so no product is spent on their
    gradient. Call it after the network was moved to its device.
    """
    return copy_with(network, {parameter: parameter for parameter in network.parameters()})


def copy_with(network: M, parameters: Mapping[Tensor, Tensor]) -> M:
    """Returns a copy whose parameters are replaced by these, as constants that share their memory.

    Buffers are shared. Torch counts in-place changes once for all tensors that share memory.
    """
    memo: dict[int, Tensor] = {id(buffer): buffer for buffer in network.buffers()}
    for parameter, replacement in parameters.items():
        memo[id(parameter)] = nn.Parameter(replacement.detach(), requires_grad=False)
    return copy.deepcopy(network, memo)


@torch.no_grad()
def polyak_update(target: Iterable[Tensor], online: Iterable[Tensor], tau: float) -> None:
    """Sets target to tau online + (1 - tau) target; copies if tau is 1.

    Lillicrap et al. 2016, "Continuous control with deep reinforcement learning", Algorithm 1.
    """
    if tau == 1:
        torch._foreach_copy_(list(target), list(online))
    else:
        torch._foreach_lerp_(list(target), list(online), tau)
