"""The forward pass of `images.py` in numpy, free of torch.

One image after the other, so that all there is in between stays in the cache. It lies channels
last: so the pixels below a window are few runs of memory, and a convolution is one matrix product.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from border_cli.nn.architecture import (
    IMPALA_BLOCKS,
    IMPALA_SECTIONS,
    MINATAR_WINDOWS,
    NATURE_WINDOWS,
    Window,
)
from border_cli.nn.encoding import BYTES, Scaling

Image: TypeAlias = NDArray[np.float32]  # [H, W, C]
Arrays: TypeAlias = Mapping[str, NDArray[Any]]

Pixels: TypeAlias = NDArray[np.uint8 | np.bool_]  # [C, H, W]

# [N, C, H, W] uint8 or bool -> [N, size] float32, a fresh array
NumpyImageNetwork: TypeAlias = Callable[[NDArray[Any]], NDArray[np.float32]]

_ZERO = np.zeros((), np.float32)


def numpy_torso(
    kind: str,
    arrays: Arrays,
    prefix: str,
    shape: tuple[int, int, int],
    scaling: Scaling = BYTES,
) -> NumpyImageNetwork:
    """`minatar_cnn`, `nature_cnn` or `impala_resnet` of the arrays under `prefix`, which are
    copied.

    What it returns computes in memory of its own, so one thread at a time may call it.
    """
    _, height, width = shape
    network = _NETWORKS[kind](arrays, prefix, (height, width), scaling)

    def torso(images: NDArray[Any]) -> NDArray[np.float32]:
        results = np.empty((len(images), *network.result_shape), np.float32)
        for image, result in zip(images, results, strict=True):
            network.compute(image, result)
        return results.reshape(len(images), -1)

    return torso


class _Convolution:
    """Weights, the image that they are `given`, and the sums; the two are overwritten each time."""

    def __init__(
        self,
        arrays: Arrays,
        name: str,
        sides: tuple[int, int],
        *,
        stride: int = 1,
        padding: int = 0,
    ) -> None:
        weight = arrays[f"{name}.weight"]  # [outputs, inputs, side, side]
        outputs, inputs, side, _ = weight.shape
        # [side * side * inputs, outputs]
        self.weight = np.array(weight.transpose(2, 3, 1, 0), order="C").reshape(-1, outputs)
        self._bias = np.array(arrays[f"{name}.bias"])  # [outputs]

        height, width = sides
        padded = np.zeros((height + 2 * padding, width + 2 * padding, inputs), np.float32)
        self.given = padded[padding : padding + height, padding : padding + width]
        windows = sliding_window_view(padded, (side, side), axis=(0, 1))[::stride, ::stride]
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


class _PlainCnn:
    def __init__(
        self,
        windows: Sequence[Window],
        arrays: Arrays,
        prefix: str,
        sides: tuple[int, int],
        scaling: Scaling,
    ) -> None:
        self._convolutions: list[_Convolution] = []
        for i, window in enumerate(windows):
            name = f"{prefix}convolutions.{i}"
            self._convolutions.append(_Convolution(arrays, name, sides, stride=window.stride))
            sides = self._convolutions[-1].sides
        _share_memory(self._convolutions)
        self._convolutions[0].scale(scaling)
        self.result_shape = (windows[-1].outputs, *sides)

    def compute(self, pixels: Pixels, result: NDArray[np.float32]) -> None:
        """[C, H, W] both."""
        self._convolutions[0].look_at(pixels)
        for convolution, following in pairwise(self._convolutions):
            np.maximum(convolution.sums(), _ZERO, out=following.given)
        np.maximum(self._convolutions[-1].sums(), _ZERO, out=result.transpose(1, 2, 0))


class _Pooling:
    """The greatest of 3x3 pixels at every second one, as `pooled` of `images.py`."""

    def __init__(self, sides: tuple[int, int], channels: int) -> None:
        height, width = sides
        self.sides = ((height + 1) // 2, (width + 1) // 2)  # of the result
        self._rows = np.empty((self.sides[0], width, channels), np.float32)
        self._result = np.empty((*self.sides, channels), np.float32)

    def greatest(self, image: Image) -> Image:
        """[H, W, C] -> [⌈H/2⌉, ⌈W/2⌉, C], overwritten the next time."""
        _greatest_of_three(image, into=self._rows)
        _greatest_of_three(self._rows.swapaxes(0, 1), into=self._result.swapaxes(0, 1))
        return self._result


def _greatest_of_three(lines: NDArray[np.float32], into: NDArray[np.float32]) -> None:
    """Of lines 2i, 2i + 1 and the next, or where their number is odd, the one before."""
    evens, odds = lines[::2], lines[1::2]
    if len(evens) == len(odds):
        np.maximum(evens, odds, out=into)
        np.maximum(into[:-1], evens[1:], out=into[:-1])
    else:
        np.maximum(evens[:-1], odds, out=into[:-1])
        into[-1] = evens[-1]
        np.maximum(into[1:], odds, out=into[1:])


class _Section:
    def __init__(self, arrays: Arrays, name: str, sides: tuple[int, int]) -> None:
        self.first = _Convolution(arrays, f"{name}.convolution", sides, padding=1)
        self._pooling = _Pooling(sides, self.first.weight.shape[1])
        self.sides = self._pooling.sides  # of the result
        self._blocks = [
            (
                _Convolution(arrays, f"{name}.blocks.{i}.first", self.sides, padding=1),
                _Convolution(arrays, f"{name}.blocks.{i}.second", self.sides, padding=1),
            )
            for i in range(IMPALA_BLOCKS)
        ]

    def convolutions(self) -> Iterator[_Convolution]:
        yield self.first
        for block in self._blocks:
            yield from block

    def result(self) -> Image:
        """Of what the first convolution is given; overwritten the next time."""
        image = self._pooling.greatest(self.first.sums())
        for first, second in self._blocks:
            np.maximum(image, _ZERO, out=first.given)
            np.maximum(first.sums(), _ZERO, out=second.given)
            image += second.sums()
        return image


class _ImpalaResNet:
    def __init__(
        self, arrays: Arrays, prefix: str, sides: tuple[int, int], scaling: Scaling
    ) -> None:
        self._sections: list[_Section] = []
        for i in range(len(IMPALA_SECTIONS)):
            self._sections.append(_Section(arrays, f"{prefix}sections.{i}", sides))
            sides = self._sections[-1].sides
        _share_memory([each for section in self._sections for each in section.convolutions()])
        self._sections[0].first.scale(scaling)
        self.result_shape = (IMPALA_SECTIONS[-1], *sides)

    def compute(self, pixels: Pixels, result: NDArray[np.float32]) -> None:
        """[C, H, W] both."""
        self._sections[0].first.look_at(pixels)
        for section, following in pairwise(self._sections):
            np.copyto(following.first.given, section.result())
        np.maximum(self._sections[-1].result(), _ZERO, out=result.transpose(1, 2, 0))


# (arrays, prefix, (height, width), scaling) -> the network
_NETWORKS: dict[str, Callable[..., _PlainCnn | _ImpalaResNet]] = {
    "minatar_cnn": partial(_PlainCnn, MINATAR_WINDOWS),
    "nature_cnn": partial(_PlainCnn, NATURE_WINDOWS),
    "impala_resnet": _ImpalaResNet,
}
