"""Hand-written forward and backward passes, against autograd."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from border_cli.nn.architecture import Architecture
from border_cli.nn.dense import Layer, compute_deltas, compute_gradient, forward_pass
from border_cli.nn.network import LearnedNetwork, Network, target_of
from tests.support.spaces import numbers


def network(sizes: list[int]) -> Network:
    architecture = Architecture(numbers(sizes[0]), hidden=tuple(sizes[1:-1]))
    return Network(architecture, sizes[-1], np.random.default_rng(0))


@pytest.mark.parametrize("sizes", [[3, 2], [3, 8, 2], [5, 16, 8, 8, 1]])
@pytest.mark.parametrize("rows", [1, 20])
def test_outputs_and_gradients_are_those_of_autograd(sizes: list[int], rows: int):
    built = network(sizes)
    generator = torch.Generator().manual_seed(1)
    features = torch.randn(rows, sizes[0], generator=generator)
    slope = torch.randn(rows, sizes[-1], generator=generator)

    expected, autograd_cache = LearnedNetwork.forward_with_cache(built, features)
    outputs, cache = built.forward_with_cache(features)
    assert isinstance(cache, list)  # the cache of the hand-written pass
    torch.testing.assert_close(outputs, expected, rtol=1e-6, atol=1e-6)
    with torch.no_grad():
        torch.testing.assert_close(built(features), expected, rtol=1e-6, atol=1e-6)

    expected_gradient = built.backward(autograd_cache, slope)
    for actual, reference in zip(built.backward(cache, slope), expected_gradient, strict=True):
        assert not actual.requires_grad
        torch.testing.assert_close(actual, reference, rtol=1e-6, atol=1e-6)


def test_worked_by_hand():
    first = Layer(torch.tensor([[1.0], [-1.0]]), torch.tensor([0.0, 1.0]))
    second = Layer(torch.tensor([[2.0, 3.0]]), torch.tensor([-1.0]))
    activations = forward_pass([first, second], torch.tensor([[4.0], [-1.0]]), onednn=False)
    # relu(4, -3) = (4, 0), 2*4 - 1 = 7;  relu(-1, 2) = (0, 2), 3*2 - 1 = 5
    assert [rows.tolist() for rows in activations] == [[[4], [-1]], [[4, 0], [0, 2]], [[7], [5]]]
    layer_deltas = compute_deltas(
        [first, second], activations, torch.tensor([[1.0], [10.0]]), onednn=False
    )
    assert [rows.tolist() for rows in layer_deltas] == [[[2, 0], [0, 30]], [[1], [10]]]
    gradient = compute_gradient([first, second], layer_deltas, activations, onednn=False)
    assert [tensor.tolist() for tensor in gradient] == [[[8], [-30]], [2, 30], [[4, 20]], [11]]


def test_a_relu_at_zero_passes_nothing():
    layer = Layer(torch.ones(1, 1), torch.zeros(1))
    activations = forward_pass([layer, layer], torch.zeros(1, 1), onednn=False)
    first, _ = compute_deltas([layer, layer], activations, torch.ones(1, 1), onednn=False)
    assert float(first) == 0


def test_a_copy_computes_with_weights_of_its_own():
    original = network([2, 3, 1])
    copy, features = target_of(original), torch.ones(4, 2)
    with torch.no_grad():
        for parameter in original.parameters():
            parameter.fill_(0.5)
    assert original.forward_with_cache(features)[0].tolist() == [[2.75]] * 4  # 3 * 0.5 * 1.5 + 0.5
    assert (copy.forward_with_cache(features)[0] != 2.75).all()
    original.double()
    assert original.forward_with_cache(features.double())[0].dtype is torch.float64
