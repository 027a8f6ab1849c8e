"""Networks of agents: their form, forward passes that keep what backward passes need, copies."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any, TypeAlias, TypeVar

import torch
from torch import Tensor, nn

from border_cli.nn.architecture import Architecture
from border_cli.nn.dense import Gradient, Mlp, deltas, forward_pass, gradient_of
from border_cli.nn.features import FeatureTensors, Torso

M = TypeVar("M", bound=nn.Module)

Kept: TypeAlias = Tensor | list[Tensor]  # outputs with autograd's graph, or inputs of dense layers


def torso_of(architecture: Architecture, generator: torch.Generator) -> Torso:
    """A user's network, or convolutions where there are images."""
    if architecture.target is not None:
        from border_cli.nn.user_network import UserTorso

        return UserTorso(architecture, generator)
    if architecture.images:
        from border_cli.nn.images import ImageTorso

        return ImageTorso(architecture, generator)
    return Torso(architecture.row_size)


class LearnedNetwork(nn.Module):
    """A network whose gradient follows from the derivative of a loss by its outputs: by autograd.

    A subclass may write its backward pass out; no agent knows which.
    """

    def keeping(self, *given: Any) -> tuple[Tensor, Kept]:
        """The outputs, as constants, and what `backward` needs of this forward pass."""
        outputs: Tensor = self(*given)
        return outputs.detach(), outputs

    def backward(self, kept: Kept, grad_output: Tensor) -> Gradient:
        """The gradient by all parameters that have one."""
        assert isinstance(kept, Tensor)
        return torch.autograd.grad(kept, self._leaves, grad_output)

    @cached_property
    def _leaves(self) -> list[nn.Parameter]:
        return [each for each in self.parameters() if each.requires_grad]


class Network(LearnedNetwork):
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
        self.torso = torso_of(architecture, generator)
        sizes = [self.torso.size, *architecture.hidden]
        self.mlp = Mlp(architecture, sizes, outputs, generator, final_bound=final_bound)
        whole = type(self).forward is Network.forward and not architecture.has_encoder
        self._by_hand = whole and self.mlp.plain
        self._layers = self.mlp.memory
        self._form = {"onednn": self.mlp.onednn, "tanh": self.mlp.tanh}

    def forward(self, features: FeatureTensors) -> Tensor:
        result: Tensor = self.mlp(self.torso(features))  # [B, outputs]
        return result

    def keeping(self, *given: Any) -> tuple[Tensor, Kept]:
        if not self._by_hand or torch.compiler.is_compiling():  # autograd's backward is compiled
            return super().keeping(*given)
        if torch.is_grad_enabled():  # the block is spared where it is off: it takes 3 µs
            with torch.no_grad():
                return self.keeping(*given)
        inputs = forward_pass(self._layers, given[0], **self._form)
        return inputs[-1], inputs

    def backward(self, kept: Kept, grad_output: Tensor) -> Gradient:
        if isinstance(kept, Tensor):
            return super().backward(kept, grad_output)
        with torch.no_grad():
            found = deltas(self._layers, kept, grad_output, **self._form)
            return gradient_of(self._layers, found, kept, onednn=self.mlp.onednn)


def target_of(network: M) -> M:
    """A copy that no gradient changes: a target network, moved by `polyak_update`."""
    return copy.deepcopy(network).requires_grad_(False)


def without_gradient(network: M) -> M:
    """A network in the memory of another, through which gradients flow to its inputs only.

    An actor maximises it: the critic's weights are constants there, and no product is spent on
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


@torch.no_grad()
def polyak_update(target: Iterable[Tensor], online: Iterable[Tensor], tau: float) -> None:
    """target := tau online + (1 - tau) target. At 1 it copies.

    Lillicrap et al. 2016, "Continuous control with deep reinforcement learning", Algorithm 1.
    """
    if tau == 1:
        torch._foreach_copy_(list(target), list(online))
    else:
        torch._foreach_lerp_(list(target), list(online), tau)
