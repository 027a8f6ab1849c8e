"""The passes that are written out, against autograd."""

from __future__ import annotations

import pytest
import torch

from border_cli.nn.matmul import TORCH, Layer
from border_cli.nn.network import Mlp, backward, forward


@pytest.mark.parametrize("sizes", [[3, 2], [3, 8, 2], [5, 16, 8, 8, 1]])
@pytest.mark.parametrize("rows", [1, 20])
def test_outputs_and_gradients_are_those_of_autograd(sizes: list[int], rows: int):
    generator = torch.Generator().manual_seed(0)
    network = Mlp(sizes, generator)
    inputs = torch.randn(rows, sizes[0], generator=generator)
    slope = torch.randn(rows, sizes[-1], generator=generator)

    expected = network(inputs.requires_grad_())
    given = forward(network.layers_in_memory(), inputs.detach(), TORCH)
    assert [each.shape[1] for each in given] == sizes
    torch.testing.assert_close(given[-1], expected.detach(), rtol=1e-6, atol=1e-6)

    theirs = torch.autograd.grad(expected, [*network.parameters(), inputs], grad_outputs=slope)
    ours, by_rows = backward(network.layers_in_memory(), given, slope, TORCH, by_rows=True)
    assert by_rows is not None
    for mine, their in zip((*ours, by_rows), theirs, strict=True):
        torch.testing.assert_close(mine, their, rtol=1e-6, atol=1e-6)


def test_worked_by_hand():
    first = Layer(torch.tensor([[1.0], [-1.0]]), torch.tensor([0.0, 1.0]))
    second = Layer(torch.tensor([[2.0, 3.0]]), torch.tensor([-1.0]))
    given = forward([first, second], torch.tensor([[4.0], [-1.0]]), TORCH)
    # relu(4, -3) = (4, 0), 2*4 - 1 = 7;  relu(-1, 2) = (0, 2), 3*2 - 1 = 5
    assert [each.tolist() for each in given] == [[[4], [-1]], [[4, 0], [0, 2]], [[7], [5]]]
    gradient, _ = backward([first, second], given, torch.tensor([[1.0], [10.0]]), TORCH)
    # by the hidden sums: (2, 0) of the first row, (0, 30) of the second
    assert [each.tolist() for each in gradient] == [[[8], [-30]], [2, 30], [[4, 20]], [11]]


def test_a_relu_at_zero_passes_nothing():
    layer = Layer(torch.ones(1, 1), torch.zeros(1))
    given = forward([layer, layer], torch.zeros(1, 1), TORCH)
    (weight, bias, _, _), _ = backward([layer, layer], given, torch.ones(1, 1), TORCH)
    assert (float(weight), float(bias)) == (0, 0)


def test_the_memory_of_a_network_is_its_own_and_needs_no_autograd():
    network = Mlp([2, 3, 1], torch.Generator())
    layers = network.layers_in_memory()
    with torch.no_grad():
        for each in network.parameters():
            each.fill_(0.5)
    assert all((each == 0.5).all() for layer in layers for each in layer)
    assert not any(each.requires_grad for layer in layers for each in layer)
