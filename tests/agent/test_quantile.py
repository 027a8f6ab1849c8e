"""The quantile Huber loss against rlax, its slope by finite differences, and a row by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from oracle import by_row, rlax

from border_cli.agent.qrdqn import distance, quantile_regression

B, N, TARGETS = 5, 4, 3


def draw(seed: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Quantiles, fractions, targets and weights of rows, in double precision."""
    rng = np.random.default_rng(seed)
    shapes = (B, N), (B, N), (B, TARGETS), (B, 1)
    quantiles, fractions, target, weight = (torch.from_numpy(rng.random(each)) for each in shapes)
    return quantiles * 4, fractions, target * 4, weight


def row(*values: float) -> torch.Tensor:
    return torch.tensor([values], dtype=torch.float64)


@pytest.mark.parametrize("kappa", [0.0, 0.3, 1.0, 2.5])
def test_the_loss_is_that_of_rlax_divided_by_kappa(kappa: float):
    quantiles, fractions, target, weight = draw(0)
    rows = by_row(
        rlax.quantile_regression_loss, quantiles, fractions, target, huber_param=kappa
    )  # [B]
    expected = np.mean(weight.squeeze(1).numpy() * rows) / (kappa or 1)
    found = quantile_regression(quantiles, fractions, target, weight, kappa)
    assert found.loss.item() == pytest.approx(expected, rel=1e-12)
    assert found.q_mean.item() == pytest.approx(quantiles.mean().item())


def test_one_row_by_hand():
    """At fraction 1/4 a target 2 above costs 1/4 (2 - 1/2), one 1/2 below 3/4 (1/2)^2 / 2."""
    found = quantile_regression(row(0), row(0.25), row(2, -0.5), row(2), 1.0)
    assert found.loss.item() == 2 * (0.375 + 0.09375) / 2
    assert found.grad_output.tolist() == [[-2 * (0.25 - 0.375) / 2]]
    plain = quantile_regression(row(0), row(0.25), row(2, -0.5), row(2), 0.0)
    assert plain.loss.item() == 2 * (0.25 * 2 + 0.75 * 0.5) / 2
    assert plain.grad_output.tolist() == [[-2 * (0.25 - 0.75) / 2]]


@pytest.mark.parametrize("kappa", [0.0, 0.4, 1.0])
def test_the_slope_is_the_derivative_of_the_loss(kappa: float):
    quantiles, fractions, target, weight = draw(1)
    found = quantile_regression(quantiles, fractions, target, weight, kappa)
    step = 1e-7
    for b in range(B):
        for n in range(N):
            losses = []
            for sign in (1, -1):
                moved = quantiles.clone()
                moved[b, n] += sign * step
                losses.append(
                    quantile_regression(moved, fractions, target, weight, kappa).loss.item()
                )
            by_hand = (losses[0] - losses[1]) / (2 * step)
            assert found.grad_output[b, n].item() == pytest.approx(by_hand, rel=1e-6, abs=1e-9)


def test_fractions_of_all_rows_are_those_of_each():
    quantiles, fractions, target, weight = draw(2)
    of_all = quantile_regression(quantiles, fractions[0], target, weight, 1.0)
    of_each = quantile_regression(quantiles, fractions[:1].expand(B, N), target, weight, 1.0)
    assert torch.equal(of_all.grad_output, of_each.grad_output)
    assert of_all.loss == of_each.loss


def test_a_weight_multiplies_the_loss_of_its_row_once():
    quantiles, fractions, target, weight = draw(3)
    ones = torch.ones_like(weight)
    plain = quantile_regression(quantiles, fractions, target, ones, 1.0)
    weighted = quantile_regression(quantiles, fractions, target, weight, 1.0)
    np.testing.assert_allclose(weighted.grad_output, plain.grad_output * weight, rtol=1e-12)
    half = quantile_regression(quantiles, fractions, target, ones / 2, 1.0)
    assert half.loss.item() == pytest.approx(plain.loss.item() / 2)


def test_the_distance_of_a_row_is_the_mean_over_all_pairs():
    assert distance(row(0, 2), row(1, 3)).tolist() == [(1 + 3 + 1 + 1) / 4]
