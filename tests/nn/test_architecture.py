"""Which spaces count as images, and the output sizes of convolutional networks."""

from __future__ import annotations

import numpy as np
import pytest

from border_cli.errors import ConfigError
from border_cli.nn.architecture import (
    MINATAR_WINDOWS,
    NATURE_WINDOWS,
    Architecture,
    image_axes,
    image_shape,
    impala_side,
    pixel_scaling,
    size_after,
)
from tests.support.spaces import box, numbers, pixels


@pytest.mark.parametrize(
    ("shape", "image"),
    [
        ((4, 84, 84), (4, 84, 84)),
        ((84, 84, 4), (4, 84, 84)),
        ((210, 160, 3), (3, 210, 160)),
        ((3, 210, 160), (3, 210, 160)),
        ((36, 40), (1, 36, 40)),
        ((64, 64, 64), (64, 64, 64)),
        ((6, 7, 2), (2, 6, 7)),
        ((2, 6, 7), (2, 6, 7)),
        ((6, 7), (1, 6, 7)),
        ((4, 84, 84, 3), (12, 84, 84)),  # four stacked images
        ((4, 3, 84, 84), (12, 84, 84)),
        ((4, 84, 84, 1), (4, 84, 84)),
    ],
)
@pytest.mark.parametrize("dtype", ["uint8", "bool"])
def test_the_smaller_of_first_and_last_axis_holds_the_channels(
    shape: tuple[int, ...], image: tuple[int, int, int], dtype: str
):
    assert image_shape(box(shape, dtype)) == image


@pytest.mark.parametrize(
    ("shape", "image", "first"),
    [
        ((10, 10, 4), (4, 10, 10), False),  # MinAtar's Breakout; also four stacked frames
        ((4, 10, 10), (4, 10, 10), True),
        ((10, 10, 10), (10, 10, 10), False),  # MinAtar's Seaquest
        ((8, 8, 111), (111, 8, 8), False),  # planes of a chess board
        ((111, 8, 8), (111, 8, 8), True),
        ((7, 9, 7), (7, 7, 9), False),  # not square: the last of two equal axes
    ],
)
def test_the_third_axis_of_a_square_holds_the_channels_and_the_last_of_a_cube(
    shape: tuple[int, ...], image: tuple[int, int, int], first: bool
):
    assert image_shape(box(shape, "uint8")) == image
    assert (image_axes(shape) == (0, 1, 2)) == first


@pytest.mark.parametrize(
    "shape",
    [(5, 84), (84, 5, 3), (3, 84, 5), (84,), (), (2, 3, 4, 84, 84), (2, 5, 84, 3), (10, 10, 0)],
)
def test_what_is_too_small_or_has_other_axes_is_no_image(shape: tuple[int, ...]):
    assert image_shape(box(shape, "uint8")) is None


@pytest.mark.parametrize("dtype", ["float32", "int8", "int64"])
def test_other_numbers_are_no_image(dtype: str):
    assert image_shape(box((4, 84, 84), dtype)) is None


def test_pixels_are_scaled_by_one_number_where_all_have_the_same_bounds():
    assert pixel_scaling(pixels(10, 10, 4)) == (0, 1 / 255)
    assert pixel_scaling(box((10, 10, 4), "uint8")) == (0, 1)
    assert pixel_scaling(box((10, 10), "int8", -2, 2)) == (-2, 0.25)


def test_the_channels_of_each_stacked_image_have_its_bounds():
    high = np.array([[1, 2], [3, 4]])[:, None, None]  # two images with two channels each
    scaling = pixel_scaling(box((2, 6, 8, 2), "uint8", 0, np.broadcast_to(high, (2, 6, 8, 2))))
    np.testing.assert_allclose(scaling.factor, [1, 1 / 2, 1 / 3, 1 / 4], rtol=1e-6)


@pytest.mark.parametrize("last", [True, False])
def test_each_channel_is_scaled_by_its_widest_bounds(last: bool):
    high = np.ones((6, 8, 3))
    high[..., 1], high[2, 3, 1], high[..., 2] = 4, 10, 255  # one pixel has wider bounds
    low = np.zeros((6, 8, 3))
    low[..., 2] = 5
    if not last:
        high, low = high.transpose(2, 0, 1), low.transpose(2, 0, 1)
    scaling = pixel_scaling(box(high.shape, "uint8", low, high))
    np.testing.assert_allclose(scaling.low, [0, 0, 5])
    np.testing.assert_allclose(scaling.factor, [1, 0.1, 0.004], rtol=1e-6)


def test_output_size_of_the_nature_network():
    # 84 -> (84 - 8) / 4 + 1 = 20 -> (20 - 4) / 2 + 1 = 9 -> 7; 36 -> 8 -> 3 -> 1
    assert size_after(NATURE_WINDOWS, (4, 84, 36)) == 64 * 7 * 1


def test_output_size_of_the_minatar_network():
    assert size_after(MINATAR_WINDOWS, (4, 10, 6)) == 16 * 8 * 4


def test_output_sides_of_the_resnet():
    # 84 -> 42 -> 21 -> 11; 72 -> 36 -> 18 -> 9; 6 -> 3 -> 2 -> 1
    assert [impala_side(pixels) for pixels in (84, 72, 6)] == [11, 9, 1]


def test_an_empty_observation_is_refused() -> None:
    with pytest.raises(ConfigError, match="the observation is empty"):
        Architecture(numbers(0))
