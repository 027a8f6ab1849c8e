"""Acting through the learner's own modules, in inference mode: images, and networks of users."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from border_cli.core.types import map_array
from border_cli.nn.architecture import Architecture
from border_cli.nn.features import Features, FeatureTensors
from border_cli.nn.numpy_network import ActingNetwork, Arrays, MakeActing, Rows
from border_cli.nn.tensor_batch import tensor_obs

MakeModule: TypeAlias = Callable[[torch.Generator], nn.Module]  # picklable

# How outputs [N, outputs] come from a network, features and the generator of its noise.
Call: TypeAlias = Callable[[Any, FeatureTensors, np.random.Generator | None], Tensor]


def acting_network(
    architecture: Architecture,
    *,
    twin: MakeActing,
    module: MakeModule,
    normalize: bool,
    call: Call,
) -> MakeActing:
    """The numpy `twin` of dense layers; for images and networks of users the `module` itself."""
    if not architecture.has_encoder:
        return twin
    return partial(TorchNetwork, architecture, module, normalize=normalize, call=call)


def plain(
    network: nn.Module,
    features: FeatureTensors,
    noise: np.random.Generator | None,  # noqa: ARG001 - of noisy networks
) -> Tensor:
    """The network's outputs as they are."""
    outputs: Tensor = network(features)
    return outputs


class TorchNetwork(ActingNetwork):
    """A copy of the learner's module on the CPU; one thread at a time calls it."""

    def __init__(
        self, architecture: Architecture, module: MakeModule, *, normalize: bool, call: Call = plain
    ) -> None:
        self._features = Features(architecture, normalize=normalize)
        self._network = module(torch.Generator())
        self._call = call
        whole = nn.ModuleDict({"features": self._features, "network": self._network}).eval()
        # The memory of its weights: what it loads is read-only, of which torch warns.
        self._arrays = {name: each.numpy() for name, each in whole.state_dict().items()}

    def bind_thread(self) -> None:
        torch.set_num_threads(1)  # of the calling thread: other actors have the other cores

    def load(self, arrays: Arrays) -> None:
        for name, mine in self._arrays.items():
            np.copyto(mine, arrays[name])

    def __call__(self, obs: Any) -> Rows:
        with torch.inference_mode():
            features = self._features(tensor_obs(map_array(_own, obs)))
            outputs: Rows = self._call(self._network, features, self.noise).numpy()
        return outputs


def _own(values: NDArray[Any]) -> NDArray[Any]:
    """An array that torch takes: neither read-only nor with negative strides."""
    fits = values.flags.writeable and values.flags.c_contiguous
    return values if fits else values.copy()
