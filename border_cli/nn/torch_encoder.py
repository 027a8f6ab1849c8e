"""Encoders of actors in torch: the learner's own modules in inference mode.

So act users' networks and the ResNet, which have no twin in numpy.
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
from border_cli.nn.tensor_batch import tensor_obs


class TorchEncoder:
    """Copies of the modules on the CPU; one thread at a time calls it."""

    def __init__(self, architecture: Architecture, *, normalize: bool) -> None:
        self._features = Features(architecture, normalize=normalize)
        self._torso = torso_of(architecture, torch.Generator())
        named = {"features": self._features, "network": nn.ModuleDict({"torso": self._torso})}
        whole = nn.ModuleDict(named).eval()
        # The memory of its weights: what it loads is read-only, of which torch warns.
        self._arrays = {name: each.numpy() for name, each in whole.state_dict().items()}

    def bind_thread(self) -> None:
        """Leaves other cores to other actors."""
        torch.set_num_threads(1)  # of the calling thread

    def load(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Copies what it needs of a snapshot."""
        for name, mine in self._arrays.items():
            np.copyto(mine, arrays[name])

    @torch.inference_mode()
    def __call__(self, obs: Any) -> NDArray[np.float32]:
        """[N, …] -> [N, size]"""
        rows: NDArray[np.float32] = self._torso(
            self._features(tensor_obs(map_array(_own, obs)))
        ).numpy()
        return rows


def _own(values: NDArray[Any]) -> NDArray[Any]:
    """An array that torch takes: neither read-only nor with negative strides."""
    fits = values.flags.writeable and values.flags.c_contiguous
    return values if fits else values.copy()
