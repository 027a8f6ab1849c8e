"""Action densities against torch.distributions, and their gradients against autograd."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.distributions import Categorical, Normal

from border_cli.agent.densities import ChoiceDensity, GaussianDensity, StateDependentDensity
from tests.support.libraries import both_libraries

ROWS = 12


def randn(*shape: int, seed: int) -> Tensor:
    return torch.from_numpy(np.random.default_rng(seed).normal(size=shape))


@both_libraries
@pytest.mark.parametrize("by_entropy", [0.0, -0.3])
@pytest.mark.parametrize("nvec", [(4,), (2, 3, 1)])
@pytest.mark.parametrize("has_mask", [False, True])
def test_choices(wrap: Any, nvec: tuple[int, ...], has_mask: bool, by_entropy: float) -> None:
    size = sum(nvec)
    logits = randn(ROWS, size, seed=0).requires_grad_()
    mask = None
    if has_mask:
        mask = randn(ROWS, size, seed=1) > 0
        mask[:, [0, 2, size - 1]] = True  # at least one valid choice per component
    masked_logits = logits if mask is None else logits.masked_fill(~mask, -1e9)
    parts = [Categorical(logits=part) for part in masked_logits.split_with_sizes([*nvec], 1)]
    torch.manual_seed(0)
    action = torch.stack([part.sample() for part in parts], 1)
    log_prob = torch.stack([p.log_prob(a) for p, a in zip(parts, action.T, strict=True)]).sum(0)
    entropy = torch.stack([part.entropy() for part in parts]).sum(0)
    weights = randn(ROWS, seed=2)
    (expected,) = torch.autograd.grad((weights * log_prob + by_entropy * entropy).sum(), logits)

    valid = None if mask is None else wrap(mask.numpy())
    density = ChoiceDensity(nvec, wrap(logits.detach().numpy()), valid, wrap(action.numpy()))
    np.testing.assert_allclose(density.log_prob, log_prob.detach(), rtol=1e-10)
    np.testing.assert_allclose(density.entropy, entropy.detach(), rtol=1e-8, atol=1e-12)
    (gradient,) = density.backward(wrap(weights.numpy()), by_entropy)
    np.testing.assert_allclose(gradient, expected, rtol=1e-8, atol=1e-10)


def check_gaussian(
    wrap: Any, by_entropy: float, density_class: Any, std: Tensor, *parts: Tensor
) -> None:
    """Compares a density of `parts` (mean, log_std, …, action), whose deviations are `std`."""
    mean, log_std, *_, action = parts
    normal = Normal(mean, std)
    log_prob, entropy = normal.log_prob(action).sum(1), normal.entropy().sum(1)
    weights = randn(ROWS, seed=3)
    loss = (weights * log_prob + by_entropy * entropy).sum()
    expected = torch.autograd.grad(loss, [mean, log_std])

    density = density_class(*(wrap(part.detach().numpy()) for part in parts))
    np.testing.assert_allclose(density.log_prob, log_prob.detach(), rtol=1e-10)
    np.testing.assert_allclose(density.entropy, entropy.detach(), rtol=1e-10)
    for gradient, expected_gradient in zip(
        density.backward(wrap(weights.numpy()), by_entropy), expected, strict=True
    ):
        np.testing.assert_allclose(gradient, expected_gradient, rtol=1e-10)


@both_libraries
@pytest.mark.parametrize("by_entropy", [0.0, -0.3])
def test_a_gaussian(wrap: Any, by_entropy: float) -> None:
    mean, action = randn(ROWS, 3, seed=0).requires_grad_(), randn(ROWS, 3, seed=1)
    log_std = randn(3, seed=2).requires_grad_()
    check_gaussian(wrap, by_entropy, GaussianDensity, log_std.exp(), mean, log_std, action)


@both_libraries
@pytest.mark.parametrize("by_entropy", [0.0, -0.3])
def test_state_dependent_noise(wrap: Any, by_entropy: float) -> None:
    mean, action = randn(ROWS, 3, seed=0).requires_grad_(), randn(ROWS, 3, seed=1)
    log_std, hidden = randn(5, 3, seed=2).requires_grad_(), randn(ROWS, 5, seed=4)
    std = ((hidden[:, :, None] ** 2 * log_std.exp() ** 2).sum(1) + 1e-6).sqrt()
    parts = mean, log_std, hidden, action
    check_gaussian(wrap, by_entropy, StateDependentDensity, std, *parts)


@both_libraries
def test_state_dependent_noise_agrees_with_stable_baselines3(wrap: Any) -> None:
    """Numbers of `StateDependentNoiseDistribution` in Stable-Baselines3 2.9.2, in float64."""
    mean, action = np.array([[0.5, -1.0], [0.0, 2.0]]), np.array([[0.1, -0.5], [1.5, 1.0]])
    log_std = np.array([[-0.5, 0.2], [0.3, -1.0], [0.0, 0.1]])
    hidden = np.array([[0.3, -0.8, 0.5], [-0.2, 0.9, 0.1]])
    density = StateDependentDensity(*map(wrap, (mean, log_std, hidden, action)))
    np.testing.assert_allclose(
        density.log_prob, [-1.9951366048016252, -4.6919562392928365], rtol=1e-12
    )
    entropy = [2.7023977591356143, 2.1875969969448508]
    np.testing.assert_allclose(density.entropy, entropy, rtol=1e-12)
    by_mean, by_log_std = density.backward(wrap(np.array([1.0, -2.0])), 0.1)
    expected = [
        [-0.27600174831949664, 0.9501539840084452],
        [-1.9991571473991139, 11.018701248293272],
    ]
    np.testing.assert_allclose(by_mean, expected, rtol=1e-10)
    expected = [
        [-0.026851745939843102, -3.040523277825474],
        [-1.5192863434703607, -5.456333521362934],
        [-0.14219578862905316, -0.8467175133637749],
    ]
    np.testing.assert_allclose(by_log_std, expected, rtol=1e-10)
