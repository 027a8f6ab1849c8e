"""Action densities against torch.distributions and integration, and networks that output them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.distributions import Normal, TanhTransform, TransformedDistribution

from border_cli.nn.architecture import (
    CUT_LOG_STD_MAX,
    CUT_LOG_STD_MIN,
    SQUASHED_LOG_STD_MAX,
    SQUASHED_LOG_STD_MIN,
    Architecture,
)
from border_cli.nn.choices import Choices
from border_cli.nn.distributions import (
    CategoricalNetwork,
    GaussianNetwork,
    gaussian_log_prob,
    log_prob,
    sample,
    split,
)
from tests.support.spaces import numbers

TWO = numbers(2)
SMALL = Architecture(observation=TWO, hidden=(4,))


def randn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def torch_distribution(
    mean: Tensor, log_std: Tensor, tanh: TanhTransform
) -> TransformedDistribution:
    return TransformedDistribution(Normal(mean, log_std.exp()), tanh)


def test_the_density_of_a_sample_is_that_of_torch_distributions():
    mean, log_std, noise = randn(50, 3), 0.5 * randn(50, 3, seed=1), randn(50, 3, seed=2)
    action, density = sample(mean, log_std, noise)
    torch.testing.assert_close(action, torch.tanh(mean + log_std.exp() * noise))
    tanh = TanhTransform(cache_size=1)  # caches the action, because inverting tanh loses precision
    action = tanh(mean + log_std.exp() * noise)
    expected = torch_distribution(mean, log_std, tanh).log_prob(action).sum(dim=1, keepdim=True)
    assert density.shape == (50, 1)
    torch.testing.assert_close(density, expected, rtol=1e-6, atol=0)


def test_the_density_of_an_action_of_data_is_that_of_torch_distributions():
    mean, log_std = randn(50, 3), 0.5 * randn(50, 3, seed=1)
    action = torch.tanh(randn(50, 3, seed=2))
    expected = (
        torch_distribution(mean, log_std, TanhTransform()).log_prob(action).sum(dim=1, keepdim=True)
    )
    torch.testing.assert_close(log_prob(mean, log_std, action), expected, rtol=1e-6, atol=0)


def test_actions_and_densities_have_the_gradients_of_finite_differences():
    inputs = randn(4, 2).requires_grad_(), randn(4, 2, seed=1).requires_grad_()
    noise, action = randn(4, 2, seed=2), torch.tanh(randn(4, 2, seed=3))
    assert torch.autograd.gradcheck(lambda *parameters: sample(*parameters, noise), inputs)
    assert torch.autograd.gradcheck(lambda *parameters: log_prob(*parameters, action), inputs)


def test_far_from_zero_densities_and_gradients_stay_exact():
    """Where tanh rounds to 1 in float32, log(1 - tanh(x)^2) is 2 (log 2 - x)."""
    mean = torch.tensor([[20.0, -20.0]], requires_grad=True)
    action, density = sample(mean, torch.zeros(1, 2), torch.zeros(1, 2))
    assert action.tolist() == [[1, -1]]
    slope = 2 * (np.log(2) - 20)
    assert density.item() == pytest.approx(2 * (-0.5 * np.log(2 * np.pi) - slope), rel=1e-6)
    (gradient,) = torch.autograd.grad(density.sum(), mean)
    np.testing.assert_allclose(gradient.numpy(), [[2, -2]], rtol=1e-6)


def test_an_action_at_the_very_bound_has_a_finite_density():
    zeros = torch.zeros(1, 2, requires_grad=True)
    density = log_prob(zeros, zeros, torch.tensor([[1.0, -1.0]]))
    (gradient,) = torch.autograd.grad(density.sum(), zeros)
    assert torch.isfinite(density).all()
    assert torch.isfinite(gradient).all()


def test_deviations_have_the_range_of_the_paper():
    mean, log_std = split(torch.tensor([[5.0, -50.0, 50.0, -50.0], [-5.0, 3.0, 1.5, -3.0]]))
    assert mean.tolist() == [[5, -50], [-5, 3]]
    assert log_std.tolist() == [[SQUASHED_LOG_STD_MAX, SQUASHED_LOG_STD_MIN], [1.5, -3]]


def gaussian() -> GaussianNetwork:
    return GaussianNetwork(SMALL, 3, np.random.default_rng(0))


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
    network.clamp_parameters()
    assert network.log_std.tolist() == [CUT_LOG_STD_MIN, pytest.approx(0.3), CUT_LOG_STD_MAX]
    assert network.log_std.requires_grad


def test_the_density_of_a_choice_is_its_logit_over_all():
    network = CategoricalNetwork(SMALL, 3, np.random.default_rng(0), choices=Choices([3]))
    logits = torch.log(torch.tensor([[1.0, 2.0, 5.0], [3.0, 1.0, 4.0]]))
    density = network.log_prob(logits, torch.tensor([[2], [0]]))
    torch.testing.assert_close(density.exp(), torch.tensor([[5 / 8], [3 / 8]]))
    network.clamp_parameters()
