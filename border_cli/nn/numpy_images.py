"""The plain convolutional networks of `images.py` in numpy, free of torch.

Images lie channels last: so the pixels below a window are few runs of memory, and a convolution is
one matrix product. Several convolutions compute one image after the other, so that all there is in
between stays in the cache: four of 84 x 84 at a time gained 1 to 7 % and had other last bits. With
one such image this takes three fifths of torch's time, with 8 as long. A single convolution
computes small images together: 8 of 10 x 10 in half of the time that they take one by one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from border_cli.nn.architecture import ConvolutionWindow
from border_cli.nn.encoding import BYTES, Scaling

Images: TypeAlias = NDArray[np.float32]  # [H, W, C], or [G, H, W, C] of a group
Arrays: TypeAlias = Mapping[str, NDArray[Any]]
Pixels: TypeAlias = NDArray[np.uint8 | np.bool_]  # [G, C, H, W]

GROUP_NUMBERS = 2**16  # below all windows of the images that are computed together
MOST_IN_GROUP = 32
_ZERO = np.zeros((), np.float32)


class _Convolution(NamedTuple):
    """Weights, and the form of what they are applied to."""

    weight: NDArray[np.float32]  # [side * side * inputs, outputs]
    bias: NDArray[np.float32]  # [outputs]
    sides: tuple[int, int]  # of the images
    inputs: int
    side: int  # of a window
    stride: int

    @property
    def sides_after(self) -> tuple[int, int]:
        """Height and width of the convolved images."""
        height, width = ((each - self.side) // self.stride + 1 for each in self.sides)
        return height, width

    @property
    def size_below(self) -> int:
        """Numbers below all windows of one image."""
        return math.prod(self.sides_after) * len(self.weight)


class _Sums:
    """The images that a convolution is `given`, and its sums; both are overwritten each time.

    A single image has no axis for it: every array would have one more, which takes time.
    """

    def __init__(self, convolution: _Convolution, count: int, memory: NDArray[np.float32]) -> None:
        """`memory` is where what is below the windows is copied; it is not needed between two
        calls."""
        side, stride = convolution.side, convolution.stride
        group = () if count == 1 else (count,)
        self._weight, self._bias = convolution.weight, convolution.bias
        self.given = np.zeros((*group, *convolution.sides, convolution.inputs), np.float32)
        axes = (len(group), len(group) + 1)
        windows = sliding_window_view(self.given, (side, side), axis=axes)
        windows = windows[..., ::stride, ::stride, :, :, :]
        self._windows = np.moveaxis(windows, -3, -1)  # [(G,) H', W', side, side, inputs]
        self._below = memory[: windows.size].reshape(self._windows.shape)
        self._rows = memory[: windows.size].reshape(-1, len(self._weight))
        self._sums = np.empty((*windows.shape[:-3], len(self._bias)), np.float32)
        self._sum_rows = self._sums.reshape(-1, len(self._bias))

    def sums(self) -> Images:
        """Of the images `given`.  [(G,) H', W', outputs]"""
        np.copyto(self._below, self._windows)
        np.dot(self._rows, self._weight, out=self._sum_rows)
        self._sums += self._bias
        return self._sums


class _Group:
    """All convolutions of a number of images, in memory of their own."""

    def __init__(
        self, convolutions: Sequence[_Convolution], count: int, low: NDArray[np.float32] | None
    ) -> None:
        # What one has copied is of no use to the next, and overwritten it stays in the cache.
        memory = np.empty(count * max(each.size_below for each in convolutions), np.float32)
        self._all = [_Sums(each, count, memory) for each in convolutions]
        self._single = count == 1
        self._channels_last = (1, 2, 0) if self._single else (0, 2, 3, 1)
        self._low = low  # what is subtracted from pixels

    def compute(self, pixels: Pixels, results: NDArray[np.float32]) -> None:
        """[G, C, H, W] both."""
        given = self._all[0].given
        if self._single:
            pixels, results = pixels[0], results[0]
        for channel in range(given.shape[-1]):  # half the time of a transposed copy
            given[..., channel] = pixels[..., channel, :, :]
        if self._low is not None:
            given -= self._low
        for each, following in pairwise(self._all):
            np.maximum(each.sums(), _ZERO, out=following.given)
        np.maximum(self._all[-1].sums(), _ZERO, out=results.transpose(self._channels_last))


class NumpyCnn:
    """The twin of `PlainCnn`; owns copies of the arrays under `prefix`.

    It computes in memory of its own, so one thread at a time may call it.
    """

    def __init__(
        self,
        windows: Sequence[ConvolutionWindow],
        arrays: Arrays,
        prefix: str,
        shape: tuple[int, int, int],
        scaling: Scaling = BYTES,
    ) -> None:
        sides = shape[1:]
        self._convolutions: list[_Convolution] = []
        for i, window in enumerate(windows):
            weight = arrays[f"{prefix}convolutions.{i}.weight"]  # [outputs, inputs, side, side]
            outputs, inputs, side, _ = weight.shape
            columns = np.array(weight.transpose(2, 3, 1, 0), order="C").reshape(-1, outputs)
            bias = np.array(arrays[f"{prefix}convolutions.{i}.bias"])
            self._convolutions.append(
                _Convolution(columns, bias, sides, inputs, side, window.stride)
            )
            sides = self._convolutions[-1].sides_after
        first = self._convolutions[0]
        # Pixels are scaled by weights: there are fewer of them.
        by_input = first.weight.reshape(-1, first.inputs, first.weight.shape[1])
        by_input *= np.asarray(scaling.factor, np.float32).reshape(-1, 1)  # [1 or inputs, 1]
        self._low = np.asarray(scaling.low, np.float32) if scaling.shifts else None
        self._result_shape = (windows[-1].outputs, *sides)
        several = len(windows) == 1  # else products take most of the time
        fitting = GROUP_NUMBERS // first.size_below
        self._most = max(1, min(MOST_IN_GROUP, fitting)) if several else 1
        self._groups: dict[int, _Group] = {}  # by the number of images

    def __call__(self, images: NDArray[Any]) -> NDArray[np.float32]:
        """[N, C, H, W] uint8 or bool -> [N, size] float32, a fresh array."""
        results = np.empty((len(images), *self._result_shape), np.float32)
        for i in range(0, len(images), self._most):
            count = min(self._most, len(images) - i)
            group = self._groups.get(count)
            if group is None:
                group = self._groups[count] = _Group(self._convolutions, count, self._low)
            group.compute(images[i : i + count], results[i : i + count])
        return results.reshape(len(images), -1)
