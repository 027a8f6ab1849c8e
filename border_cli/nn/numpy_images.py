"""The plain convolutional networks of `images.py` in numpy, without torch.

Images are stored channels last, so the pixels of a window are a few contiguous runs of memory, and
a convolution is one matrix product. Several convolutions process one image after the other, so that
intermediate results stay in the cache: four images of 84 x 84 at a time gained 1 to 7 % and changed
the last bits. One such image takes three fifths of torch's time, 8 take as long as in torch. A
single convolution processes small images together: 8 of 10 x 10 take half as long as one by one.
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

Images: TypeAlias = NDArray[np.float32]  # [H, W, C], or [G, H, W, C] for a group
Arrays: TypeAlias = Mapping[str, NDArray[Any]]
Pixels: TypeAlias = NDArray[np.uint8 | np.bool_]  # [G, C, H, W]

GROUP_NUMBERS = 2**16  # maximum number of values in the windows of a group
MOST_IN_GROUP = 32
_ZERO = np.zeros((), np.float32)


class _Convolution(NamedTuple):
    """The weights of a convolution, and the size of the images to which it is applied."""

    weight: NDArray[np.float32]  # [side * side * inputs, outputs]
    bias: NDArray[np.float32]  # [outputs]
    sides: tuple[int, int]  # height and width of the images
    inputs: int
    side: int  # height and width of a window
    stride: int

    @property
    def sides_after(self) -> tuple[int, int]:
        """Height and width of the convolved images."""
        height, width = ((pixels - self.side) // self.stride + 1 for pixels in self.sides)
        return height, width

    @property
    def window_values(self) -> int:
        """Number of values in all windows of one image."""
        return math.prod(self.sides_after) * len(self.weight)


class _Buffers:
    """Buffers for the input and the output of a convolution, overwritten by every call.

    A single image has no group axis, because an additional axis of all arrays takes time.
    """

    def __init__(self, convolution: _Convolution, count: int, memory: NDArray[np.float32]) -> None:
        """`memory` is a buffer for the pixels of all windows, which may be overwritten between two
        calls."""
        side, stride = convolution.side, convolution.stride
        group = () if count == 1 else (count,)
        self._weight, self._bias = convolution.weight, convolution.bias
        self.images = np.zeros((*group, *convolution.sides, convolution.inputs), np.float32)
        axes = (len(group), len(group) + 1)
        windows = sliding_window_view(self.images, (side, side), axis=axes)
        windows = windows[..., ::stride, ::stride, :, :, :]
        self._windows = np.moveaxis(windows, -3, -1)  # [(G,) H', W', side, side, inputs]
        self._patches = memory[: windows.size].reshape(self._windows.shape)
        self._patch_rows = memory[: windows.size].reshape(-1, len(self._weight))
        self._outputs = np.empty((*windows.shape[:-3], len(self._bias)), np.float32)
        self._output_rows = self._outputs.reshape(-1, len(self._bias))

    def convolve(self) -> Images:
        """Convolves the images.  [(G,) H', W', outputs]"""
        np.copyto(self._patches, self._windows)
        np.dot(self._patch_rows, self._weight, out=self._output_rows)
        self._outputs += self._bias
        return self._outputs


class _Group:
    """All convolutions of a network for a fixed number of images, with buffers."""

    def __init__(
        self, convolutions: Sequence[_Convolution], count: int, low: NDArray[np.float32] | None
    ) -> None:
        # Shared: no convolution needs the windows of another, and reused memory stays in the cache.
        memory = np.empty(count * max(layer.window_values for layer in convolutions), np.float32)
        self._layers = [_Buffers(layer, count, memory) for layer in convolutions]
        self._single = count == 1
        self._channels_last = (1, 2, 0) if self._single else (0, 2, 3, 1)
        self._low = low  # subtracted from pixels

    def compute(self, pixels: Pixels, results: NDArray[np.float32]) -> None:
        """Writes the results for these pixels. [G, C, H, W] both"""
        images = self._layers[0].images
        if self._single:
            pixels, results = pixels[0], results[0]
        for channel in range(images.shape[-1]):  # half the time of a transposed copy
            images[..., channel] = pixels[..., channel, :, :]
        if self._low is not None:
            images -= self._low
        for layer, next_layer in pairwise(self._layers):
            np.maximum(layer.convolve(), _ZERO, out=next_layer.images)
        np.maximum(self._layers[-1].convolve(), _ZERO, out=results.transpose(self._channels_last))


class NumpyCnn:
    """The numpy counterpart of `PlainCnn`; owns copies of the arrays under `prefix`.

    It has its own buffers, so only one thread at a time may call it.
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
        # The weights are scaled, because there are more pixels than weights.
        by_input = first.weight.reshape(-1, first.inputs, first.weight.shape[1])
        by_input *= np.asarray(scaling.factor, np.float32).reshape(-1, 1)  # [1 or inputs, 1]
        self._low = np.asarray(scaling.low, np.float32) if scaling.shifts else None
        self._result_shape = (windows[-1].outputs, *sides)
        in_groups = len(windows) == 1  # otherwise products take most of the time
        fitting = GROUP_NUMBERS // first.window_values
        self._most = max(1, min(MOST_IN_GROUP, fitting)) if in_groups else 1
        self._groups: dict[int, _Group] = {}  # by number of images

    def __call__(self, images: NDArray[Any]) -> NDArray[np.float32]:
        """[N, C, H, W] uint8 or bool -> [N, size] float32, a new array."""
        results = np.empty((len(images), *self._result_shape), np.float32)
        for i in range(0, len(images), self._most):
            count = min(self._most, len(images) - i)
            group = self._groups.get(count)
            if group is None:
                group = self._groups[count] = _Group(self._convolutions, count, self._low)
            group.compute(images[i : i + count], results[i : i + count])
        return results.reshape(len(images), -1)
