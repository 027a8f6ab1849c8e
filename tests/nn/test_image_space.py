"""What counts as an image, and what the networks leave of it."""

from __future__ import annotations

import numpy as np
import pytest

from border_cli.core.spaces import BoxSpace
from border_cli.nn.image_space import image_shape, impala_side, nature_side


def box(shape: tuple[int, ...], dtype: str = "uint8") -> BoxSpace:
    return BoxSpace(shape=shape, dtype=dtype, low=np.zeros(shape), high=np.ones(shape))


@pytest.mark.parametrize(
    ("shape", "image"),
    [
        ((4, 84, 84), (4, 84, 84)),
        ((84, 84, 4), (4, 84, 84)),
        ((210, 160, 3), (3, 210, 160)),
        ((3, 210, 160), (3, 210, 160)),
        ((36, 40), (1, 36, 40)),
        ((64, 64, 64), (64, 64, 64)),
    ],
)
def test_the_smaller_of_first_and_last_axis_holds_the_channels(
    shape: tuple[int, ...], image: tuple[int, int, int]
):
    assert image_shape(box(shape)) == image


@pytest.mark.parametrize("shape", [(35, 84), (84, 35, 3), (3, 84, 35), (84,), (), (2, 3, 84, 84)])
def test_what_is_too_small_or_has_other_axes_is_no_image(shape: tuple[int, ...]):
    assert image_shape(box(shape)) is None


def test_real_numbers_are_no_image():
    assert image_shape(box((4, 84, 84), "float32")) is None


def test_what_the_nature_network_leaves():
    # 84 -> (84 - 8) / 4 + 1 = 20 -> (20 - 4) / 2 + 1 = 9 -> 7; 36 -> 8 -> 3 -> 1
    assert (nature_side(84), nature_side(36)) == (7, 1)


def test_what_the_resnet_leaves():
    # 84 -> 42 -> 21 -> 11; 72 -> 36 -> 18 -> 9
    assert (impala_side(84), impala_side(72)) == (11, 9)
