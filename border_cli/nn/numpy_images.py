"""The plain convolutional networks of `images.py` in numpy, free of torch.

One image after the other, so that all there is in between stays in the cache. It lies channels
last: so the pixels below a window are few runs of memory, and a convolution is one matrix product.
With one image of 84 x 84 this takes about three fifths of torch's time, with 8 as long.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from border_cli.nn.architecture import Window
from border_cli.nn.encoding import BYTES, Scaling

Image: TypeAlias = NDArray[np.float32]  # [H, W, C]
Arrays: TypeAlias = Mapping[str, NDArray[Any]]
Pixels: TypeAlias = NDArray[np.uint8 | np.bool_]  # [C, H, W]

_ZERO = np.zeros((), np.float32)


class _Convolution:
    """Weights, the image that they are `given`, and the sums; the two are overwritten each time."""

    def __init__(
        self,
        arrays: Arrays,
        name: str,
        sides: Sequence[int],
        stride: int,
    ) -> None:
        weight = arrays[f"{name}.weight"]  # [outputs, inputs, side, side]
        outputs, inputs, side, _ = weight.shape
        # [side * side * inputs, outputs]
        self.weight = np.array(weight.transpose(2, 3, 1, 0), order="C").reshape(-1, outputs)
        self._bias = np.array(arrays[f"{name}.bias"])  # [outputs]

        self.given = np.zeros((*sides, inputs), np.float32)
        windows = sliding_window_view(self.given, (side, side), axis=(0, 1))[::stride, ::stride]
        self._windows = windows.transpose(0, 1, 3, 4, 2)  # [H', W', side, side, inputs]
        self._sums = np.empty((*windows.shape[:2], outputs), np.float32)
        self._sum_rows = self._sums.reshape(-1, outputs)
        self.sides = (windows.shape[0], windows.shape[1])  # of the sums
        self.size_below = windows.size  # numbers below all windows together
        self._low: NDArray[np.float32] | None = None  # what is subtracted from pixels

    def share(self, memory: NDArray[np.float32]) -> None:
        """Where to copy what is below the windows; it is not needed between two calls."""
        below = memory[: self.size_below]
        self._below = below.reshape(self._windows.shape)
        self._rows = below.reshape(len(self._sum_rows), -1)

    def scale(self, scaling: Scaling) -> None:
        """Pixels that it looks at are scaled from now on, by weights: there are fewer of them."""
        by_input = self.weight.reshape(-1, self.given.shape[2], self.weight.shape[1])
        by_input *= np.asarray(scaling.factor, np.float32).reshape(-1, 1)  # [1 or inputs, 1]
        if scaling.shifts:
            self._low = np.asarray(scaling.low, np.float32)

    def look_at(self, pixels: Pixels) -> None:
        """Is given these."""
        for channel, values in enumerate(pixels):  # half the time of a transposed copy
            self.given[:, :, channel] = values
        if self._low is not None:
            self.given -= self._low

    def sums(self) -> Image:
        """Of the image `given`.  [H', W', outputs]"""
        np.copyto(self._below, self._windows)
        np.dot(self._rows, self.weight, out=self._sum_rows)
        self._sums += self._bias
        return self._sums


def _share_memory(convolutions: Sequence[_Convolution]) -> None:
    """What one has copied is of no use to the next, and overwritten it stays in the cache."""
    memory = np.empty(max(each.size_below for each in convolutions), np.float32)
    for each in convolutions:
        each.share(memory)


class NumpyCnn:
    """The twin of `PlainCnn`; owns copies of the arrays under `prefix`.

    It computes in memory of its own, so one thread at a time may call it.
    """

    def __init__(
        self,
        windows: Sequence[Window],
        arrays: Arrays,
        prefix: str,
        shape: tuple[int, int, int],
        scaling: Scaling = BYTES,
    ) -> None:
        sides: Sequence[int] = shape[1:]
        self._convolutions: list[_Convolution] = []
        for i, window in enumerate(windows):
            name = f"{prefix}convolutions.{i}"
            self._convolutions.append(_Convolution(arrays, name, sides, window.stride))
            sides = self._convolutions[-1].sides
        _share_memory(self._convolutions)
        self._convolutions[0].scale(scaling)
        self._result_shape = (windows[-1].outputs, *sides)

    def __call__(self, images: NDArray[Any]) -> NDArray[np.float32]:
        """[N, C, H, W] uint8 or bool -> [N, size] float32, a fresh array."""
        results = np.empty((len(images), *self._result_shape), np.float32)
        for image, result in zip(images, results, strict=True):
            self._compute(image, result)
        return results.reshape(len(images), -1)

    def _compute(self, pixels: Pixels, result: NDArray[np.float32]) -> None:
        """[C, H, W] both."""
        self._convolutions[0].look_at(pixels)
        for convolution, following in pairwise(self._convolutions):
            np.maximum(convolution.sums(), _ZERO, out=following.given)
        np.maximum(self._convolutions[-1].sums(), _ZERO, out=result.transpose(1, 2, 0))
