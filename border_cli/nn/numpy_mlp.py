"""The forward pass of `mlp.py` in numpy: three times as fast at batch 1, and free of torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import count, takewhile
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from border_cli.core.config import Activation
from border_cli.nn.architecture import LAYER_NORM_EPSILON

Rows: TypeAlias = NDArray[np.float32]

_ZERO = np.zeros((), np.float32)  # as an array it saves a tenth of a forward pass at batch 1
_EPSILON = np.float32(LAYER_NORM_EPSILON)


def _relu(rows: Rows) -> None:
    np.maximum(rows, _ZERO, out=rows)


def _tanh(rows: Rows) -> None:
    np.tanh(rows, out=rows)


def _elu(rows: Rows) -> None:
    np.copyto(rows, np.expm1(np.minimum(rows, _ZERO)), where=rows < 0)


def _silu(rows: Rows) -> None:
    rows *= np.float32(0.5) * (np.float32(1) + np.tanh(rows * np.float32(0.5)))


NUMPY_ACTIVATIONS: dict[Activation, Callable[[Rows], None]] = {
    Activation.relu: _relu,
    Activation.tanh: _tanh,
    Activation.elu: _elu,
    Activation.silu: _silu,
}


class NumpyMlp:
    """Copies of the arrays `<prefix>layers.<i>.weight` and `.bias`; never changes afterwards.

    Layers are normalised where there is a `<prefix>norms.<i>.weight`.
    """

    def __init__(
        self,
        arrays: Mapping[str, NDArray[Any]],
        prefix: str = "",
        activation: Activation = Activation.relu,
    ) -> None:
        names = takewhile(
            lambda name: f"{name}.weight" in arrays,
            (f"{prefix}layers.{i}" for i in count()),
        )
        *self._hidden, self._last = [
            # [inputs, outputs], rows in sequence: 20 % faster than a transposed view at batch 1
            (np.array(arrays[f"{name}.weight"].T, order="C"), np.array(arrays[f"{name}.bias"]))
            for name in names
        ]
        self._activate = NUMPY_ACTIVATIONS[activation]
        self._norms = [
            (
                np.array(arrays[f"{prefix}norms.{i}.weight"]),
                np.array(arrays[f"{prefix}norms.{i}.bias"]),
            )
            for i in range(len(self._hidden))
            if f"{prefix}norms.{i}.weight" in arrays
        ]

    def __call__(self, rows: Rows) -> Rows:
        """[N, inputs] -> [N, outputs], a fresh array."""
        weight, bias = self._last
        result: Rows = self.trunk(rows).dot(weight)
        result += bias
        return result

    def trunk(self, rows: Rows) -> Rows:
        """What the last layer is given. [N, inputs] -> [N, last hidden]"""
        for i, (weight, bias) in enumerate(self._hidden):
            rows = rows.dot(weight)
            rows += bias
            if self._norms:
                normalise(rows, *self._norms[i])
            self._activate(rows)
        return rows


def normalise(rows: Rows, weight: Rows, bias: Rows) -> None:
    """Layer norm, in place. [N, size]"""
    rows -= rows.mean(axis=1, keepdims=True)
    rows /= np.sqrt(np.square(rows).mean(axis=1, keepdims=True) + _EPSILON)
    rows *= weight
    rows += bias
