"""The forward pass of `quantile_network.py` in numpy, for actors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from border_cli.nn.architecture import Architecture
from border_cli.nn.numpy_features import numpy_torso
from border_cli.nn.numpy_mlp import NUMPY_ACTIVATIONS, NumpyMlp, normalise


class NumpyQuantileNetwork:
    """From N observations to the mean of each action's quantiles at these fractions.

    Owns copies of the arrays under `prefix`. The fractions never change, so their part of the
    network is computed once.
    """

    def __init__(
        self,
        architecture: Architecture,
        arrays: Mapping[str, NDArray[Any]],
        prefix: str,
        fractions: Sequence[float],
    ) -> None:
        self._torso = numpy_torso(architecture, arrays, prefix)
        self._activate = NUMPY_ACTIVATIONS[architecture.activation]
        self._psi: NumpyMlp | None = None
        if f"{prefix}psi.layers.0.weight" in arrays:
            self._psi = NumpyMlp(arrays, f"{prefix}psi.", architecture.activation)
        self._norm: tuple[NDArray[np.float32], NDArray[np.float32]] | None = None
        if f"{prefix}norm.weight" in arrays:
            weight, bias = arrays[f"{prefix}norm.weight"], arrays[f"{prefix}norm.bias"]
            self._norm = np.array(weight), np.array(bias)
        self._phi = _embedded(fractions, arrays, f"{prefix}phi.")  # [K, size]
        self._f = NumpyMlp(arrays, f"{prefix}f.", architecture.activation)

    def __call__(self, obs: Any) -> NDArray[np.float32]:
        """[N, …] -> [N, num_actions], a fresh array."""
        rows = self._embedded(obs)  # [N, size]
        beside = rows[:, None, :] * self._phi  # [N, K, size]
        quantiles = self._f(beside.reshape(-1, beside.shape[2]))  # [N * K, num_actions]
        means: NDArray[np.float32] = quantiles.reshape(*beside.shape[:2], -1).mean(axis=1)
        return means

    def _embedded(self, obs: Any) -> NDArray[np.float32]:
        """psi(s). [N, size]"""
        rows = self._torso(obs)
        if self._psi is None:
            return rows
        rows = self._psi(rows)
        if self._norm is not None:
            normalise(rows, *self._norm)
        self._activate(rows)
        return rows


def _embedded(
    fractions: Sequence[float], arrays: Mapping[str, NDArray[Any]], prefix: str
) -> NDArray[np.float32]:
    """phi(tau) of every fraction. [K, size]"""
    weight = arrays[f"{prefix}weight"]  # [size, embedding_size]
    waves = np.pi * np.arange(weight.shape[1])
    cosines = np.cos(np.array(fractions)[:, None] * waves).astype(np.float32)
    rows: NDArray[np.float32] = cosines @ weight.T + arrays[f"{prefix}bias"]
    return np.maximum(rows, 0, out=rows)
