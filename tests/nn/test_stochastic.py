"""Distributions over actions whose density is learned."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from border_cli.core.spaces import BoxSpace
from border_cli.nn.architecture import Architecture
from border_cli.nn.gaussian_range import CUT_LOG_STD_MAX, CUT_LOG_STD_MIN
from border_cli.nn.stochastic import (
    CategoricalNetwork,
    GaussianNetwork,
    gaussian_log_prob,
    gumbel_max,
)

TWO = BoxSpace(shape=(2,), dtype="float32", low=np.zeros(2), high=np.ones(2))
SMALL = Architecture(observation=TWO, hidden=(4,))


def gaussian() -> GaussianNetwork:
    return GaussianNetwork(SMALL, 3, torch.Generator().manual_seed(0))


def test_the_density_is_that_of_a_normal_distribution():
    generator = torch.Generator().manual_seed(1)
    mean, action = torch.randn(2, 5, 3, generator=generator, dtype=torch.float64)
    log_std = torch.tensor([-3.0, 0.0, 1.5], dtype=torch.float64)
    expected = torch.distributions.Normal(mean, log_std.exp()).log_prob(action).sum(1, keepdim=True)
    torch.testing.assert_close(
        gaussian_log_prob(mean, log_std, action), expected, rtol=1e-9, atol=0
    )


def test_a_gaussian_begins_with_deviation_1_around_a_tanh():
    network = gaussian()
    features = torch.tensor([[50.0, -80.0], [0.5, 0.1]])
    assert network(features).abs().max() <= 1
    torch.testing.assert_close(network(features), torch.tanh(network.mlp(features)))
    outputs = network(features)
    expected = torch.distributions.Normal(outputs, 1.0).log_prob(torch.zeros(2, 3))
    torch.testing.assert_close(
        network.log_prob(outputs, torch.zeros(2, 3)), expected.sum(1, keepdim=True)
    )


def test_samples_of_a_gaussian_stay_within_the_bounds():
    network, outputs = gaussian(), torch.tensor([[0.5, 0.5, 0.5]])
    network.log_std.data = torch.tensor([-1.0, 0.0, -1.0])
    action = network.sample(outputs, torch.tensor([[1.0, 1.0, -1.0]]))
    expected = [0.5 + np.exp(-1), 1.0, 0.5 - np.exp(-1)]
    np.testing.assert_allclose(action.detach()[0], expected, rtol=1e-6)


def test_deviations_are_led_back_into_their_range():
    network = gaussian()
    network.log_std.data = torch.tensor([-9.0, 0.3, 7.0])
    network.confine()
    assert network.log_std.tolist() == [CUT_LOG_STD_MIN, pytest.approx(0.3), CUT_LOG_STD_MAX]
    assert network.log_std.requires_grad


def test_actions_are_drawn_as_often_as_the_softmax_says():
    logits = torch.log(torch.tensor([0.1, 0.6, 0.3])).expand(50_000, 3) + 4
    noise = torch.rand(50_000, 3, generator=torch.Generator().manual_seed(2))
    noise[0, 1] = 0  # which a generator may give, and which means never
    drawn = gumbel_max(logits, noise)
    assert drawn.sum(1).eq(1).all()
    assert drawn[0, 1] == 0
    np.testing.assert_allclose(drawn.mean(0), [0.1, 0.6, 0.3], atol=0.01)


def test_the_density_of_a_choice_is_its_logit_over_all():
    network = CategoricalNetwork(SMALL, 3, torch.Generator().manual_seed(0))
    logits = torch.log(torch.tensor([[1.0, 2.0, 5.0], [3.0, 1.0, 4.0]]))
    log_prob = network.log_prob(logits, torch.tensor([[2], [0]]))
    torch.testing.assert_close(log_prob.exp(), torch.tensor([[5 / 8], [3 / 8]]))
    network.confine()
