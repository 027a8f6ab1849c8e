"""Initial weights: their distributions, and networks that take them in a fixed order."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from border_cli.nn.architecture import Architecture
from border_cli.nn.initial_weights import (
    fill_truncated_normal,
    fill_uniform,
    make_orthogonal,
    orthogonal,
)
from border_cli.nn.network import Network
from border_cli.nn.tensors import to_arrays
from tests.support.snapshots import snapshot_arrays
from tests.support.spaces import numbers, pixels


def seeded(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def arrays_of(network: Network) -> dict[str, NDArray[np.float32]]:
    """Returns the arrays that share the memory of the parameters."""
    arrays: dict[str, NDArray[np.float32]] = to_arrays(network.state_dict())
    return arrays


def test_uniform_draws_fill_both_sides_of_zero_up_to_the_bound():
    array = np.empty((200, 500), np.float32)
    fill_uniform(array, 0.3, seeded())
    assert -0.3 <= array.min() < -0.2999
    assert 0.2999 < array.max() <= 0.3
    # The tolerances are 3.7 and 3.5 standard deviations of 100,000 draws.
    assert array.mean() == pytest.approx(0, abs=0.002)
    assert np.square(array).mean() == pytest.approx(0.3**2 / 3, abs=0.0003)


def test_truncated_normal_draws_are_within_two_deviations_and_do_not_pile_up_there():
    array = np.empty((200, 500), np.float32)
    fill_truncated_normal(array, 0.5, seeded())
    assert 0.999 < np.abs(array).max() <= 1
    assert (np.abs(array) > 0.99).mean() < 0.003  # the density there is 0.23
    assert array.mean() == pytest.approx(0, abs=0.005)
    # A standard normal truncated to [-2, 2] has standard deviation 0.8796.
    assert array.std() == pytest.approx(0.8796 * 0.5, rel=0.01)


@pytest.mark.parametrize(("shape", "gain"), [((5, 40), 0.01), ((40, 5), 1.0), ((7, 7), 2**0.5)])
def test_the_fewer_of_rows_and_columns_are_orthogonal_with_norm_gain(
    shape: tuple[int, int], gain: float
):
    matrix = orthogonal(shape, gain, seeded())
    assert (matrix.shape, matrix.dtype) == (shape, np.float32)
    assert matrix.flags.c_contiguous
    products = matrix @ matrix.T if shape[0] <= shape[1] else matrix.T @ matrix
    np.testing.assert_allclose(products, gain**2 * np.eye(min(shape)), atol=1e-6 * gain**2)


def test_orthogonal_matrices_are_uniform_over_all_of_them():
    """Without the signs of the decomposition, every entry at [0, 0] would be negative."""
    rng = seeded()
    corners = np.array([orthogonal((3, 3), 1.0, rng)[0, 0] for _ in range(1_000)])
    # An entry of a random unit vector in three dimensions is uniform in [-1, 1].
    assert corners.mean() == pytest.approx(0, abs=0.07)
    assert np.square(corners).mean() == pytest.approx(1 / 3, abs=0.035)


@pytest.mark.parametrize("seed", [0, 1])
def test_a_network_takes_the_draws_of_its_seed_layer_by_layer_weight_before_bias(seed: int):
    network = Network(Architecture(numbers(4), hidden=(8, 6)), 2, seeded(seed))
    rng = seeded(seed)
    for inputs, layer in zip((4, 8, 6), network.mlp.memory, strict=True):
        for parameter in layer:
            expected = np.empty(parameter.shape, np.float32)
            fill_uniform(expected, inputs**-0.5, rng)
            np.testing.assert_array_equal(parameter.detach().numpy(), expected)


def test_orthogonal_layers_have_the_gains_of_hidden_layers_policy_and_value():
    network = Network(Architecture(pixels(36, 36), hidden=(16,)), 4, seeded())
    make_orthogonal(arrays_of(network), rng=seeded(1), gain=0.01, outputs=3)
    hidden, last = network.mlp.memory
    weights = [*(layer.weight for layer in network.torso.images[0].convolutions), hidden.weight]
    assert len(weights) == 4
    for weight in weights:
        rows = weight.detach().flatten(1).numpy()
        products = rows @ rows.T if len(rows) <= rows.shape[1] else rows.T @ rows
        np.testing.assert_allclose(products, 2 * np.eye(len(products)), atol=1e-5)
    policy, value = last.weight[:3].detach().numpy(), last.weight[3].detach().numpy()
    np.testing.assert_allclose(policy @ policy.T, 1e-4 * np.eye(3), atol=1e-9)
    assert value @ value == pytest.approx(1)
    for name, parameter in network.named_parameters():
        assert name.endswith("weight") or parameter.count_nonzero() == 0
    again = Network(Architecture(pixels(36, 36), hidden=(16,)), 4, seeded(5))
    make_orthogonal(arrays_of(again), rng=seeded(1), gain=0.01, outputs=3)
    for parameter, other in zip(network.parameters(), again.parameters(), strict=True):
        assert parameter.equal(other)


def test_only_the_layers_under_the_prefix_become_orthogonal():
    network = Network(Architecture(pixels(36, 36), hidden=(16,)), 4, seeded())
    before = snapshot_arrays(network)
    make_orthogonal(arrays_of(network), rng=seeded(1), gain=0.01, outputs=4, prefix="mlp.")
    changed = {name for name, array in arrays_of(network).items() if (array != before[name]).any()}
    assert changed == {name for name in before if name.startswith("mlp.")}
