"""Networks of agents: construction, forward passes with a cache for backward passes, and copies."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any, TypeAlias, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from border_cli.nn.architecture import Architecture
from border_cli.nn.dense import Gradient, Mlp, compute_deltas, compute_gradient, forward_pass
from border_cli.nn.features import FeatureTensors, Torso

M = TypeVar("M", bound=nn.Module)

Cache: TypeAlias = Tensor | list[Tensor]  # cache: outputs with autograd's graph, or layer inputs


def torso_of(architecture: Architecture, rng: np.random.Generator) -> Torso:
    """Builds a user's network, or convolutions if there are images."""
    if architecture.target is not None:
        from border_cli.nn.user_network import UserTorso

        return UserTorso(architecture, rng)
    if architecture.images:
        from border_cli.nn.images import ImageTorso

        return ImageTorso(architecture, rng)
    return Torso(architecture.row_size)


class LearnedNetwork(nn.Module):
    """A network that backpropagates a gradient with respect to its outputs, by autograd.

    A subclass may implement the backward pass by hand.
    """

    def forward_with_cache(self, *args: Any) -> tuple[Tensor, Cache]:
        """Returns the outputs, detached, and the cache of this forward pass for `backward`."""
        outputs: Tensor = self(*args)
        return outputs.detach(), outputs

    def backward(self, cache: Cache, grad_output: Tensor) -> Gradient:
        """Returns the gradient with respect to all trainable parameters."""
        assert isinstance(cache, Tensor)
        return torch.autograd.grad(cache, self._leaves, grad_output)

    @cached_property
    def _leaves(self) -> list[nn.Parameter]:
        return [leaf for leaf in self.parameters() if leaf.requires_grad]


class Network(LearnedNetwork):
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
        only_dense = type(self).forward is Network.forward and not architecture.has_encoder
        self._by_hand = only_dense and self.mlp.plain
        self._layers = self.mlp.memory
        self._form = {"onednn": self.mlp.onednn, "tanh": self.mlp.tanh}

    def forward(self, features: FeatureTensors) -> Tensor:
        result: Tensor = self.mlp(self.torso(features))  # [B, outputs]
        return result

    def forward_with_cache(self, *args: Any) -> tuple[Tensor, Cache]:
        if not self._by_hand or torch.compiler.is_compiling():  # autograd's backward is compiled
            return super().forward_with_cache(*args)
        if torch.is_grad_enabled():  # the block takes 3 µs, so it is skipped if possible
            with torch.no_grad():
                return self.forward_with_cache(*args)
        inputs = forward_pass(self._layers, args[0], **self._form)
        return inputs[-1], inputs

    def backward(self, cache: Cache, grad_output: Tensor) -> Gradient:
        if isinstance(cache, Tensor):
            return super().backward(cache, grad_output)
        with torch.no_grad():
            layer_deltas = compute_deltas(self._layers, cache, grad_output, **self._form)
            return compute_gradient(self._layers, layer_deltas, cache, onednn=self.mlp.onednn)


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
