"""Convolutional networks in numpy, against the same networks in torch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from border_cli.nn.architecture import WINDOWS
from border_cli.nn.encoding import BYTES, Scaling
from border_cli.nn.images import DerCnn, MinatarCnn, NatureCnn, PlainCnn
from border_cli.nn.numpy_images import NumpyCnn
from tests.support.snapshots import snapshot_arrays

KINDS: dict[str, type[PlainCnn]] = {
    "minatar_cnn": MinatarCnn,
    "nature_cnn": NatureCnn,
    "der_cnn": DerCnn,
}


def twin(
    kind: str,
    arrays: Any,
    prefix: str,
    shape: tuple[int, int, int],
    scaling: Scaling = BYTES,
) -> NumpyCnn:
    return NumpyCnn(WINDOWS[kind], arrays, prefix, shape, scaling)


def network(kind: str, shape: tuple[int, int, int], scaling: Scaling = BYTES) -> PlainCnn:
    generator = torch.Generator().manual_seed(0)
    built = KINDS[kind](shape, np.random.default_rng(0), scaling)
    with torch.no_grad():
        for name, parameter in built.named_parameters():
            if name.endswith("bias"):
                parameter.uniform_(-0.2, 0.2, generator=generator)
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
    result = twin(kind, snapshot_arrays(torch_network), "", shape)(images)
    assert result.dtype == np.float32
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-5)
    assert 0.2 < (result > 0).mean() < 0.95  # otherwise the comparison would be trivial


@pytest.mark.parametrize("kind", KINDS)
def test_images_are_processed_independently_and_results_are_not_overwritten(kind: str):
    torso = twin(kind, snapshot_arrays(network(kind, (2, 37, 36))), "", (2, 37, 36))
    images = pixels(3, 2, 37, 36)
    together = torso(images)
    before = together.copy()
    alone = [torso(images[i : i + 1])[0] for i in (2, 0, 1)]
    assert np.array_equal(together, before)
    if kind == "minatar_cnn":  # one product, whose last bits depend on the number of rows
        np.testing.assert_allclose(together[[2, 0, 1]], alone, rtol=1e-5, atol=1e-7)
    else:
        assert np.array_equal(together[[2, 0, 1]], alone)


@pytest.mark.parametrize("kind", KINDS)
def test_the_weights_are_copies_of_those_under_the_prefix(kind: str):
    original = snapshot_arrays(network(kind, (1, 36, 36)))
    arrays = {f"torso.images.0.{name}": np.array(array) for name, array in original.items()}
    torso = twin(kind, arrays, "torso.images.0.", (1, 36, 36))
    images = pixels(1, 1, 36, 36)
    expected = twin(kind, original, "", (1, 36, 36))(images)
    for array in arrays.values():
        array.fill(0)
    assert np.array_equal(torso(images), expected)


def test_sums_of_ones_worked_by_hand():
    arrays = {
        name: np.ones_like(array) if name.endswith("weight") else np.zeros_like(array)
        for name, array in snapshot_arrays(network("nature_cnn", (1, 36, 36))).items()
    }
    # White pixels are scaled to 1. The layers sum 8 x 8, 4 x 4 x 32 and 3 x 3 x 64 inputs.
    arrays["convolutions.2.bias"][:] = -5e6
    result = twin("nature_cnn", arrays, "", (1, 36, 36))
    white = np.full((1, 1, 36, 36), 255, np.uint8)
    np.testing.assert_allclose(result(white), np.full((1, 64), 64 * 512 * 576 - 5e6), rtol=1e-6)
    assert not result(np.zeros_like(white)).any()  # only the negative bias is left
