"""Distributions of actions with one or several discrete components."""

from __future__ import annotations

import numpy as np
import torch

from border_cli.nn.choices import Choices

TWO_AND_THREE = Choices([2, 3])
ACTION = torch.tensor([[1, 0], [0, 2]])


def test_one_hot_vectors_stand_side_by_side():
    assert TWO_AND_THREE.one_hot(ACTION).tolist() == [[0, 1, 1, 0, 0], [1, 0, 0, 0, 1]]
    assert Choices([3]).one_hot(torch.tensor([[2], [0]])).tolist() == [[0, 0, 1], [1, 0, 0]]


def test_the_probability_of_an_action_is_the_product_over_its_components():
    logits = torch.log(torch.tensor([[1.0, 3.0, 2.0, 1.0, 5.0], [4.0, 1.0, 1.0, 1.0, 8.0]]))
    density = TWO_AND_THREE.log_prob(logits, ACTION).exp()
    torch.testing.assert_close(density, torch.tensor([[3 / 4 * 2 / 8], [4 / 5 * 8 / 10]]))


def test_choices_are_drawn_as_often_as_the_softmax_of_their_component_says():
    shares = torch.tensor([0.1, 0.6, 0.3, 0.2, 0.8])
    logits = torch.log(shares).expand(50_000, 5) + 4
    noise = torch.rand(50_000, 5, generator=torch.Generator().manual_seed(2))
    noise[0, 1] = 0  # a generator may return 0, which must never select a choice
    action = Choices([3, 2]).sample(logits, noise)
    assert action[:, :3].sum(1).eq(1).all()
    assert action[0, 1] == 0
    np.testing.assert_allclose(action.mean(0), shares, atol=0.01)
    assert torch.equal(Choices([3]).sample(logits[:, :3], noise[:, :3]), action[:, :3])
