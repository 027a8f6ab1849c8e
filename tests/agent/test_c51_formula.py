"""The formula of C51: against rlax in double precision, by hand, and against autograd."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

from border_cli.agent import discrete_cql
from border_cli.agent.c51 import project, td_loss
from border_cli.agent.support import CHECKS, SupportCheck, mass_beyond
from border_cli.nn.tensor_batch import TargetDistribution, TensorBatch
from tests.support.finite_differences import slope
from tests.support.rlax_numbers import of_rlax, transitions_of, weighted_mean


def test_projections_are_those_of_rlax():
    case = of_rlax("projection")
    with torch.no_grad():
        found = project(case["positions"], case["mass"], case["atoms"])
    np.testing.assert_allclose(found, case["projected"], rtol=1e-12, atol=1e-15)
    np.testing.assert_allclose(found.sum(1), np.ones(len(found)), rtol=1e-12)


def test_mass_on_an_atom_stays_there_and_mass_between_two_is_shared():
    atoms = torch.tensor([0.0, 1.0, 2.0])
    positions = torch.tensor([[0.0, 1.0, 2.0], [0.25, 1.5, 9.0], [-3.0, 2.0, 2.0]])
    probabilities = torch.tensor([[0.5, 0.25, 0.25]]).expand(3, 3)
    expected = [[0.5, 0.25, 0.25], [0.375, 0.25, 0.375], [0.5, 0, 0.5]]
    assert project(positions, probabilities, atoms).tolist() == expected


@pytest.mark.parametrize("double", [False, True])
def test_the_loss_is_that_of_rlax(double: bool):
    case = of_rlax("c51")
    outputs, q_next, online = (case[name].flatten(1) for name in ("outputs", "next", "next_online"))
    batch = transitions_of(case)
    found = td_loss(outputs, q_next, online if double else None, batch, atoms=case["atoms"])
    expected = weighted_mean(case, "loss double" if double else "loss")
    assert float(found.metrics["loss"]) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("alpha", [0.0, 0.6])
def test_the_slope_is_the_derivative_of_the_loss(alpha: float):
    """By finite differences, of the loss and of the conservative part beside it."""
    case = of_rlax("c51")
    outputs, q_next = case["outputs"].flatten(1), case["next"].flatten(1)
    batch, atoms = transitions_of(case), case["atoms"]
    formula = partial(td_loss, atoms=atoms)
    if alpha:
        formula = partial(discrete_cql.td_loss, td_loss=formula, weight=alpha, atoms=atoms)

    def found() -> Any:
        return formula(outputs, q_next, None, batch)

    def total() -> torch.Tensor:
        metrics = found().metrics
        return metrics["loss"] + alpha * metrics.get("conservative_gap", 0)

    numeric = slope(total, outputs)
    np.testing.assert_allclose(found().grad_output, numeric, rtol=1e-6, atol=1e-9)


def test_the_error_is_the_divergence_from_the_target():
    """KL(m || p) = sum m ln(m / p): 0 where nothing is to be learned."""
    atoms = torch.tensor([0.0, 1.0])
    even, sure = torch.zeros(1, 2), torch.tensor([[0.0, 40.0]])
    column = torch.ones(1, 1)
    batch = TensorBatch(
        obs=even, action=torch.zeros(1, 1, dtype=torch.int64), reward=column / 4,
        discount=column * 0, next_obs=even, weight=column / 2,
    )  # fmt: skip
    found = td_loss(torch.log(torch.tensor([[0.75, 0.25]])), even, None, batch, atoms=atoms)
    assert found.td_error.item() == pytest.approx(0, abs=1e-7)
    assert found.metrics["q_mean"].item() == pytest.approx(0.25)
    np.testing.assert_allclose(found.grad_output, np.zeros((1, 2)), atol=1e-7)
    found = td_loss(even, sure, None, batch._replace(discount=column), atoms=atoms)
    # 1.25 is beyond the last atom, so that m = (0, 1), where p = (1/2, 1/2)
    assert found.td_error.item() == pytest.approx(np.log(2))
    assert found.metrics["loss"].item() == pytest.approx(np.log(2) / 2)
    np.testing.assert_allclose(found.grad_output, [[0.25, -0.25]], rtol=1e-6)


def target_of(reward: Any, discount: Any, probabilities: Any, atoms: Any) -> tuple[Any, Any]:
    """Targets of these rows, and their discounts. [B], [B], [B, N], [N]"""
    reward, discount, mass, atoms = (
        torch.as_tensor(each, dtype=torch.float64)
        for each in (reward, discount, probabilities, atoms)
    )
    return TargetDistribution(reward[:, None] + discount[:, None] * atoms, mass), discount[:, None]


def test_mass_counts_as_beyond_where_it_would_come_to_rest_well_beyond():
    """Atoms 0, 1, 2, and 0.1 that is still within.

    Row 1 moves them to 0.5, 1.4 and 2.3, the last one by 0.3 with 0.1 left of it each time: it
    would come to rest at 5. Row 2 ends at 2.05, and row 3 at 3, whatever the distribution was.
    """
    target, discount = target_of(
        [0.5, 2.05, 3.0], [0.9, 0.0, 0.0], [[0.2, 0.3, 0.5]] * 3, [0.0, 1.0, 2.0]
    )
    share, way, left = (3 * mass_beyond(target, discount, 2.0, 0.1)).tolist()
    assert share == pytest.approx(0.5 + 0 + 1)
    assert way == pytest.approx(0.5 * 0.3 + 0 + 1 * 1)
    assert left == pytest.approx(0.5 * 0.1 + 0 + 1 * 1)


@pytest.mark.parametrize(("low", "high", "reward"), [(0, 100, 1.0), (-100, 0, -1.0)])
@pytest.mark.parametrize("steps", [1, 3])
def test_values_at_the_bound_of_all_returns_are_within(low, high, reward, steps, caplog):
    """Tuned CartPole and Acrobot: 1 in each step and a gamma of 0.99 come to 100 and no further,
    so that all mass may lie on the outer atom, in float32 too."""
    atoms = torch.linspace(low, high, 51)
    rewards = torch.full((8, 1), sum(0.99**k for k in range(steps)) * reward)
    discount = torch.full((8, 1), 0.99**steps)
    mass = torch.zeros(8, 51)
    mass[:, -1 if reward > 0 else 0] = 1
    support = SupportCheck(low, high)
    for _ in range(9):
        told = support.check(
            TargetDistribution(torch.addcmul(rewards, discount, atoms), mass), discount
        )
        assert {name: float(each) for name, each in told.items()} == {
            "beyond_v_min": 0, "beyond_v_max": 0,
        }  # fmt: skip
    assert not caplog.records


def test_a_bound_that_is_too_near_is_said_once_with_a_value_that_is_not(caplog):
    """1.5 in each step and a gamma of 0.9 come to 15; all mass lies on 10."""
    column, mass = torch.ones(4, 1), torch.tensor([[0.0, 0.0, 1.0]]).expand(4, 3)
    atoms = torch.tensor([0.0, 5.0, 10.0])
    support = SupportCheck(0.0, 10.0)
    for count in range(1, 20):
        told = support.check(TargetDistribution(1.5 * column + 0.9 * atoms, mass), 0.9 * column)
        assert (float(told["beyond_v_min"]), float(told["beyond_v_max"])) == (0, 1)
        assert len(caplog.records) == (count >= CHECKS)
    assert caplog.messages == [
        "agent.v_max=10 is too low: 100 % of the target probability was above it and was "
        "clipped to it, so those values cannot be distinguished. In a new run, try agent.v_max=15"
    ]


def test_without_a_discount_the_range_is_doubled(caplog):
    column, mass = torch.ones(4, 1), torch.tensor([[1.0, 0.0]]).expand(4, 2)
    support = SupportCheck(-5.0, 5.0)
    for _ in range(CHECKS):
        support.check(TargetDistribution(torch.tensor([-5.0, 5.0]) - column, mass), column)
    assert caplog.messages == [
        "agent.v_min=-5 is too high: 100 % of the target probability was below it and was "
        "clipped to it, so those values cannot be distinguished. In a new run, try agent.v_min=-15"
    ]


def test_a_guess_that_passes_is_not_said(caplog):
    """An untrained network values all at 1. Rewards are 0.9 and -0.9 in turn, whose sum fits."""
    column, atoms = torch.ones(8, 1), torch.linspace(-1, 1, 51)
    rewards = 0.9 * torch.tensor([[1.0], [-1.0]] * 4)
    high, learned_by_now = torch.zeros(8, 51), torch.zeros(8, 51)
    high[:, 50] = learned_by_now[:, 25] = 1
    support = SupportCheck(-1.0, 1.0)
    shares = [
        float(
            support.check(TargetDistribution(rewards + 0.99 * atoms, mass), 0.99 * column)[
                "beyond_v_max"
            ]
        )
        for mass in [high] * 2 + [learned_by_now] * 20
    ]
    assert shares == [0.5] * 2 + [0.0] * 20
    assert not caplog.records
