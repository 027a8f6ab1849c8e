"""Convolutional networks in numpy, beside those in torch and maxima worked by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from border_cli.nn.encoding import AS_IT_IS, BYTES, Scaling
from border_cli.nn.images import ImpalaResNet, MinatarCnn, NatureCnn
from border_cli.nn.numpy_images import numpy_torso
from border_cli.nn.saving import copied_arrays

KINDS: dict[str, type[MinatarCnn | NatureCnn | ImpalaResNet]] = {
    "minatar_cnn": MinatarCnn,
    "nature_cnn": NatureCnn,
    "impala_resnet": ImpalaResNet,
}


def network(
    kind: str, shape: tuple[int, int, int], scaling: Scaling = BYTES
) -> MinatarCnn | NatureCnn | ImpalaResNet:
    """With biases other than 0, which the ResNet would begin with."""
    generator = torch.Generator().manual_seed(0)
    built = KINDS[kind](shape, generator, scaling)
    with torch.no_grad():
        for name, each in built.named_parameters():
            if name.endswith("bias"):
                each.uniform_(-0.2, 0.2, generator=generator)
    return built


def pixels(*shape: int) -> NDArray[np.uint8]:
    return np.random.default_rng(4).integers(256, size=shape, dtype=np.uint8)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", [(4, 84, 84), (1, 36, 36), (3, 37, 50), (2, 41, 39)])
@pytest.mark.parametrize("rows", [1, 3])
def test_numpy_and_torch_agree(kind: str, shape: tuple[int, int, int], rows: int):
    torch_network = network(kind, shape)
    images = pixels(rows, *shape)
    with torch.no_grad():
        expected = torch_network(torch.from_numpy(images)).numpy()
    result = numpy_torso(kind, copied_arrays(torch_network), "", shape)(images)
    assert result.dtype == np.float32
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-5)
    assert 0.2 < (result > 0).mean() < 0.95  # so that the comparison says something


@pytest.mark.parametrize("kind", ["minatar_cnn", "impala_resnet"])
@pytest.mark.parametrize("shape", [(4, 10, 10), (1, 6, 7), (10, 10, 10), (2, 11, 9)])
def test_numpy_and_torch_agree_on_small_images_of_truths(kind: str, shape: tuple[int, int, int]):
    torch_network = network(kind, shape, AS_IT_IS)
    images = pixels(5, *shape) > 127
    with torch.no_grad():
        expected = torch_network(torch.from_numpy(images)).numpy()
    torso = numpy_torso(kind, copied_arrays(torch_network), "", shape, AS_IT_IS)
    np.testing.assert_allclose(torso(images), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "scaling",
    [
        Scaling(-100.0, 1 / 300),
        Scaling(np.array([0, 50, 9], np.float32), np.array([1, 0.5, 0], np.float32)),
    ],
)
def test_numpy_and_torch_scale_pixels_alike(kind: str, scaling: Scaling):
    torch_network = network(kind, (3, 37, 40), scaling)
    images = pixels(2, 3, 37, 40)
    with torch.no_grad():
        expected = torch_network(torch.from_numpy(images)).numpy()
    torso = numpy_torso(kind, copied_arrays(torch_network), "", (3, 37, 40), scaling)
    for _ in range(2):  # what is computed in is used again
        np.testing.assert_allclose(torso(images), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", KINDS)
def test_the_layout_of_the_pixels_does_not_matter(kind: str):
    torso = numpy_torso(kind, copied_arrays(network(kind, (3, 40, 44))), "", (3, 40, 44))
    images = pixels(2, 40, 44, 3).transpose(0, 3, 1, 2)  # channels last in memory
    assert np.array_equal(torso(images), torso(np.ascontiguousarray(images)))


@pytest.mark.parametrize("kind", KINDS)
def test_each_image_is_seen_by_itself_and_results_are_kept(kind: str):
    torso = numpy_torso(kind, copied_arrays(network(kind, (2, 37, 36))), "", (2, 37, 36))
    images = pixels(3, 2, 37, 36)
    together = torso(images)
    before = together.copy()
    alone = [torso(images[i : i + 1])[0] for i in (2, 0, 1)]
    assert np.array_equal(together, before)
    assert np.array_equal(together[[2, 0, 1]], alone)


@pytest.mark.parametrize("kind", KINDS)
def test_the_weights_are_copies_of_those_under_the_prefix(kind: str):
    own = copied_arrays(network(kind, (1, 36, 36)))
    arrays = {f"torso.images.0.{name}": np.array(each) for name, each in own.items()}
    torso = numpy_torso(kind, arrays, "torso.images.0.", (1, 36, 36))
    images = pixels(1, 1, 36, 36)
    expected = numpy_torso(kind, own, "", (1, 36, 36))(images)
    for each in arrays.values():
        each.fill(0)
    assert np.array_equal(torso(images), expected)


def seen_by(side: int, pixel: tuple[int, int]) -> list[list[float]]:
    """A single white pixel through a ResNet that does nothing but pool: 3 times at every second."""
    arrays = {name: np.zeros_like(each) for name, each in copied_arrays(small(side)).items()}
    for i in range(3):
        arrays[f"sections.{i}.convolution.weight"][0, 0, 1, 1] = 1  # the pixel itself
    image = np.zeros((1, 1, side, side), np.uint8)
    image[0, 0, *pixel] = 255
    result = numpy_torso("impala_resnet", arrays, "", (1, side, side))(image)
    channels = result.reshape(32, 2, 2)
    assert not channels[1:].any()
    return np.round(channels[0], 5).tolist()


def small(side: int) -> ImpalaResNet:
    return ImpalaResNet((1, side, side), torch.Generator())


@pytest.mark.parametrize(
    ("side", "pixel", "expected"),
    [
        # 16 -> 8 -> 4 -> 2: each window begins where it stands, so the first of two sees pixels
        # 0 to 2 + 4 + 8 = 14, the second 8 to 15
        (16, (7, 7), [[1, 0], [0, 0]]),
        (16, (14, 14), [[1, 1], [1, 1]]),
        (16, (15, 14), [[0, 0], [1, 1]]),
        (16, (15, 15), [[0, 0], [0, 1]]),
        # 9 -> 5 -> 3 -> 2: each begins one before, so the first sees 0 to 1 + 2 + 4 = 7, the
        # second 1 to 8
        (9, (0, 0), [[1, 0], [0, 0]]),
        (9, (1, 0), [[1, 0], [1, 0]]),
        (9, (4, 4), [[1, 1], [1, 1]]),
        (9, (8, 7), [[0, 0], [1, 1]]),
    ],
)
def test_what_each_pooled_pixel_sees(
    side: int, pixel: tuple[int, int], expected: list[list[float]]
):
    assert seen_by(side, pixel) == expected


def test_sums_of_ones_worked_by_hand():
    arrays = {
        name: np.ones_like(each) if name.endswith("weight") else np.zeros_like(each)
        for name, each in copied_arrays(network("nature_cnn", (1, 36, 36))).items()
    }
    # White pixels count 1. 8 x 8 of them; 4 x 4 x 32 of these sums; 3 x 3 x 64 of those.
    arrays["convolutions.2.bias"][:] = -5e6
    result = numpy_torso("nature_cnn", arrays, "", (1, 36, 36))
    white = np.full((1, 1, 36, 36), 255, np.uint8)
    np.testing.assert_allclose(result(white), np.full((1, 64), 64 * 512 * 576 - 5e6), rtol=1e-6)
    assert not result(np.zeros_like(white)).any()  # the bias alone is negative
