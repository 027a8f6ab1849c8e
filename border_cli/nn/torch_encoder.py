"""Encoders of actors in torch: copies of the learner's modules, in inference mode.

They are used for users' networks and the ResNet, which have no numpy counterpart.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from border_cli.core.types import map_array
from border_cli.nn.architecture import Architecture
from border_cli.nn.features import Features
from border_cli.nn.network import torso_of
from border_cli.nn.tensors import tensor_obs


class TorchEncoder:
    """Copies of the modules on the CPU; only one thread at a time may call it."""

    def __init__(self, architecture: Architecture, *, normalize: bool) -> None:
        self._features = Features(architecture, normalize=normalize)
        self._torso = torso_of(architecture, np.random.default_rng(0))
        modules = {"features": self._features, "network": nn.ModuleDict({"torso": self._torso})}
        whole = nn.ModuleDict(modules).eval()
        # Arrays that share the weights' memory: torch would warn of tensors in read-only snapshots.
        self._arrays = {name: tensor.numpy() for name, tensor in whole.state_dict().items()}

    def bind_thread(self) -> None:
        """Limits torch to one thread, because other actors use the other cores."""
        torch.set_num_threads(1)  # of the calling thread

    def load(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Copies the required arrays of a snapshot."""
        for name, target in self._arrays.items():
            np.copyto(target, arrays[name])

    @torch.inference_mode()
    def __call__(self, obs: Any) -> NDArray[np.float32]:
        """[N, …] -> [N, size]"""
        rows: NDArray[np.float32] = self._torso(
            self._features(tensor_obs(map_array(_copy_if_needed, obs)))
        ).numpy()
        return rows


def _copy_if_needed(values: NDArray[Any]) -> NDArray[Any]:
    """Returns an array that torch accepts: neither read-only nor with negative strides."""
    fits = values.flags.writeable and values.flags.c_contiguous
    return values if fits else values.copy()
