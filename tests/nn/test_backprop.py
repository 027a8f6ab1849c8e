"""The passes that are written out, against autograd."""

from __future__ import annotations

import pytest
import torch

from border_cli.nn.architecture import Architecture
from border_cli.nn.dense import Layer, deltas, forward_pass, gradient_of
from border_cli.nn.network import LearnedNetwork, Network, target_of
from tests.support.spaces import numbers


def network(sizes: list[int]) -> Network:
    architecture = Architecture(numbers(sizes[0]), hidden=tuple(sizes[1:-1]))
    return Network(architecture, sizes[-1], torch.Generator().manual_seed(0))


@pytest.mark.parametrize("sizes", [[3, 2], [3, 8, 2], [5, 16, 8, 8, 1]])
@pytest.mark.parametrize("rows", [1, 20])
def test_outputs_and_gradients_are_those_of_autograd(sizes: list[int], rows: int):
    made = network(sizes)
    generator = torch.Generator().manual_seed(1)
    features = torch.randn(rows, sizes[0], generator=generator)
    slope = torch.randn(rows, sizes[-1], generator=generator)

    expected, by_autograd = LearnedNetwork.keeping(made, features)
    outputs, kept = made.keeping(features)
    assert isinstance(kept, list)  # written out
    torch.testing.assert_close(outputs, expected, rtol=1e-6, atol=1e-6)
    with torch.no_grad():
        torch.testing.assert_close(made(features), expected, rtol=1e-6, atol=1e-6)

    theirs = made.backward(by_autograd, slope)
    for mine, their in zip(made.backward(kept, slope), theirs, strict=True):
        assert not mine.requires_grad
        torch.testing.assert_close(mine, their, rtol=1e-6, atol=1e-6)


def test_worked_by_hand():
    first = Layer(torch.tensor([[1.0], [-1.0]]), torch.tensor([0.0, 1.0]))
    second = Layer(torch.tensor([[2.0, 3.0]]), torch.tensor([-1.0]))
    given = forward_pass([first, second], torch.tensor([[4.0], [-1.0]]), onednn=False)
    # relu(4, -3) = (4, 0), 2*4 - 1 = 7;  relu(-1, 2) = (0, 2), 3*2 - 1 = 5
    assert [each.tolist() for each in given] == [[[4], [-1]], [[4, 0], [0, 2]], [[7], [5]]]
    found = deltas([first, second], given, torch.tensor([[1.0], [10.0]]), onednn=False)
    assert [each.tolist() for each in found] == [[[2, 0], [0, 30]], [[1], [10]]]
    gradient = gradient_of([first, second], found, given, onednn=False)
    assert [each.tolist() for each in gradient] == [[[8], [-30]], [2, 30], [[4, 20]], [11]]


def test_a_relu_at_zero_passes_nothing():
    layer = Layer(torch.ones(1, 1), torch.zeros(1))
    given = forward_pass([layer, layer], torch.zeros(1, 1), onednn=False)
    first, _ = deltas([layer, layer], given, torch.ones(1, 1), onednn=False)
    assert float(first) == 0


def test_a_copy_computes_with_weights_of_its_own():
    made = network([2, 3, 1])
    alike, features = target_of(made), torch.ones(4, 2)
    with torch.no_grad():
        for each in made.parameters():
            each.fill_(0.5)
    assert made.keeping(features)[0].tolist() == [[2.75]] * 4  # 3 * 0.5 * 1.5 + 0.5
    assert (alike.keeping(features)[0] != 2.75).all()
    made.double()
    assert made.keeping(features.double())[0].dtype is torch.float64
