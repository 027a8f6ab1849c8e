"""One fused step, by hand and in plain Python."""

from __future__ import annotations

import math
import random

import pytest
import torch

from border_cli.nn.optimizer import Adam


def test_a_long_gradient_is_cut_to_the_norm_and_its_own_norm_returned():
    parameter = torch.zeros(2)
    adam = Adam([parameter], learning_rate=0.1, max_grad_norm=1.0)
    norm = adam.step((torch.tensor([3.0, 4.0]),))
    assert float(norm) == 5  # so the gradient becomes (0.6, 0.8)
    state = adam.state_dict()
    torch.testing.assert_close(state["means"][0], torch.tensor([0.06, 0.08]))
    torch.testing.assert_close(state["squares"][0], torch.tensor([0.00036, 0.00064]))
    torch.testing.assert_close(parameter, torch.tensor([-0.1, -0.1]))  # lr * g / |g|


def test_the_norm_is_taken_over_all_parameters_together():
    adam = Adam([torch.zeros(1), torch.zeros(1)], learning_rate=0.1, max_grad_norm=1.0)
    assert float(adam.step((torch.tensor([3.0]), torch.tensor([4.0])))) == 5
    means = [float(each) for each in adam.state_dict()["means"]]
    assert means == pytest.approx([0.06, 0.08])


def test_a_short_gradient_is_left_as_it_is():
    adam = Adam([torch.zeros(2)], learning_rate=0.1, max_grad_norm=10.0)
    adam.step((torch.tensor([3.0, 4.0]),))
    torch.testing.assert_close(adam.state_dict()["means"][0], torch.tensor([0.3, 0.4]))


def test_without_a_norm_nothing_is_cut_and_none_returned():
    adam = Adam([torch.zeros(2)], learning_rate=0.1)
    assert adam.step((torch.tensor([30.0, 40.0]),)) is None
    torch.testing.assert_close(adam.state_dict()["means"][0], torch.tensor([3.0, 4.0]))


def test_twenty_steps_agree_with_the_paper_in_plain_python():
    draw = random.Random(5)
    gradients = [draw.gauss(0, 1) for _ in range(20)]
    parameter = torch.zeros(1)
    adam = Adam([parameter], learning_rate=0.01)
    x = mean = square = 0.0
    for t, gradient in enumerate(gradients, start=1):
        adam.step((torch.tensor([gradient]),))
        mean = 0.9 * mean + 0.1 * gradient
        square = 0.999 * square + 0.001 * gradient**2
        x -= 0.01 * (mean / (1 - 0.9**t)) / (math.sqrt(square / (1 - 0.999**t)) + 1e-8)
    assert float(parameter) == pytest.approx(x, rel=1e-4)


def test_a_restored_optimiser_goes_on_as_the_saved_one():
    gradient = torch.tensor([0.5, -2.0])
    first, second = torch.zeros(2), torch.zeros(2)
    adam, restored = (Adam([each], learning_rate=0.1) for each in (first, second))
    adam.step((gradient,))
    second.copy_(first)
    restored.load_state_dict(adam.state_dict())
    adam.step((gradient * 3,))
    restored.step((gradient * 3,))
    assert torch.equal(first, second)


def test_a_gradient_that_lies_otherwise_in_memory_moves_the_right_weights():
    weight = torch.zeros(2, 3, requires_grad=True)
    slope = torch.tensor([[1.0, -1.0, 1.0], [-1.0, -1.0, -1.0]])

    def loss() -> torch.Tensor:
        return (weight.t() * slope.t().contiguous()).sum()

    assert not torch.autograd.grad(loss(), weight)[0].is_contiguous()
    Adam([weight], learning_rate=0.5).minimize(loss())
    # The first step of Adam is the learning rate against the sign of each entry.
    torch.testing.assert_close(weight.detach(), -0.5 * slope)
