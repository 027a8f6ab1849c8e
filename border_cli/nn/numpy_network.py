"""The forward pass of `network.py` in numpy, for actors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from border_cli.nn.architecture import Architecture
from border_cli.nn.numpy_features import numpy_torso
from border_cli.nn.numpy_mlp import NumpyMlp


class NumpyNetwork:
    """From N observations to the outputs of the network under `prefix`; owns copies."""

    def __init__(
        self, architecture: Architecture, arrays: Mapping[str, NDArray[Any]], prefix: str
    ) -> None:
        self._torso = numpy_torso(architecture, arrays, prefix)
        self._mlp = NumpyMlp(arrays, f"{prefix}mlp.", architecture.activation)

    def __call__(self, obs: Any) -> NDArray[np.float32]:
        """[N, …] -> [N, outputs], a fresh array."""
        return self._mlp(self._torso(obs))
