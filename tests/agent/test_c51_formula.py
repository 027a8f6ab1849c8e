"""The loss of C51 in numpy and torch against rlax in float64, by hand and by differences."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

from border_cli.agent import discrete_cql
from border_cli.agent.c51 import project, td_loss
from border_cli.agent.support_check import CHECKS, SupportCheck, mass_beyond
from border_cli.nn.arrays import AnyTensor
from border_cli.nn.batch import TargetDistribution, TensorBatch
from tests.support.finite_differences import slope
from tests.support.libraries import both_libraries
from tests.support.rlax_numbers import of_rlax, transitions_of, weighted_mean


@both_libraries
def test_projections_are_those_of_rlax(wrap: Any):
    case = of_rlax("projection", wrap)
    projected = project(case["positions"], case["mass"], case["atoms"])
    np.testing.assert_allclose(projected, case["projected"], rtol=1e-12, atol=1e-15)
    np.testing.assert_allclose(projected.sum(1), np.ones(len(projected)), rtol=1e-12)


@both_libraries
def test_mass_on_an_atom_stays_there_and_mass_between_two_is_shared(wrap: Any):
    atoms = wrap(np.array([0.0, 1.0, 2.0]))
    positions = wrap(np.array([[0.0, 1.0, 2.0], [0.25, 1.5, 9.0], [-3.0, 2.0, 2.0]]))
    probabilities = wrap(np.array([[0.5, 0.25, 0.25]] * 3))
    expected = [[0.5, 0.25, 0.25], [0.375, 0.25, 0.375], [0.5, 0, 0.5]]
    assert project(positions, probabilities, atoms).tolist() == expected


def outputs_of(case: dict[str, AnyTensor], *names: str) -> list[AnyTensor]:
    """Returns logits of the case as outputs of a network. [B, num_actions * N] each"""
    return [case[name].reshape(len(case[name]), -1) for name in names]


@both_libraries
@pytest.mark.parametrize("double", [False, True])
def test_the_loss_is_that_of_rlax(wrap: Any, double: bool):
    case = of_rlax("c51", wrap)
    outputs, q_next, online = outputs_of(case, "outputs", "next", "next_online")
    batch = transitions_of(case)
    result = td_loss(outputs, q_next, online if double else None, batch, atoms=case["atoms"])
    expected = weighted_mean(case, "loss double" if double else "loss")
    assert float(result.metrics["loss"]) == pytest.approx(expected, rel=1e-6)


@both_libraries
@pytest.mark.parametrize("alpha", [0.0, 0.6])
def test_the_slope_is_the_derivative_of_the_loss(wrap: Any, alpha: float):
    """Compares with finite differences, with and without the conservative loss."""
    case = of_rlax("c51", wrap)
    outputs, q_next = outputs_of(case, "outputs", "next")
    batch, atoms = transitions_of(case), case["atoms"]
    formula = partial(td_loss, atoms=atoms)
    if alpha:
        formula = partial(discrete_cql.td_loss, td_loss=formula, weight=alpha, atoms=atoms)

    def result() -> Any:
        return formula(outputs, q_next, None, batch)

    def total() -> AnyTensor:
        metrics = result().metrics
        return metrics["loss"] + alpha * metrics.get("conservative_gap", 0)

    numeric = slope(total, outputs)
    np.testing.assert_allclose(result().grad_output, numeric, rtol=1e-6, atol=1e-9)


@both_libraries
def test_the_error_is_the_divergence_from_the_target(wrap: Any):
    """KL(m || p) = sum m ln(m / p), which is 0 if the distributions are equal."""
    atoms = wrap(np.array([0.0, 1.0]))
    even, sure = wrap(np.zeros((1, 2))), wrap(np.array([[0.0, 40.0]]))
    column = wrap(np.ones((1, 1)))
    batch = TensorBatch(
        obs=even, action=wrap(np.zeros((1, 1), np.int64)), reward=column / 4,
        discount=column * 0, next_obs=even, weight=column / 2,
    )  # fmt: skip
    result = td_loss(wrap(np.log([[0.75, 0.25]])), even, None, batch, atoms=atoms)
    assert result.td_error.item() == pytest.approx(0, abs=1e-12)
    assert result.metrics["q_mean"].item() == pytest.approx(0.25)
    np.testing.assert_allclose(result.grad_output, np.zeros((1, 2)), atol=1e-12)
    result = td_loss(even, sure, None, batch._replace(discount=column), atoms=atoms)
    # 1.25 is beyond the last atom, so m = (0, 1), and p = (1/2, 1/2).
    assert result.td_error.item() == pytest.approx(np.log(2))
    assert result.metrics["loss"].item() == pytest.approx(np.log(2) / 2)
    np.testing.assert_allclose(result.grad_output, [[0.25, -0.25]], rtol=1e-6)


def build_target(
    reward: Any, discount: Any, probabilities: Any, atoms: Any, wrap: Any
) -> tuple[Any, Any]:
    """Builds target distributions and discounts [B, 1] from shapes [B], [B], [B, N] and [N]."""
    reward, discount, mass, atoms = (
        wrap(np.array(values, np.float64)) for values in (reward, discount, probabilities, atoms)
    )
    return TargetDistribution(reward[:, None] + discount[:, None] * atoms, mass), discount[:, None]


@both_libraries
def test_mass_counts_as_beyond_if_it_would_converge_well_beyond(wrap: Any):
    """The atoms are 0, 1 and 2, with a tolerance of 0.1.

    Row 1 has discount 0.9 and moves the last atom by 0.3 to 2.3, so it would converge to 5. Rows 2
    and 3 are terminal. Their mass lies at 2.05 (within the tolerance) and at 3.
    """
    target, discount = build_target(
        [0.5, 2.05, 3.0], [0.9, 0.0, 0.0], [[0.2, 0.3, 0.5]] * 3, [0.0, 1.0, 2.0], wrap
    )
    fraction, excess, decay = (3 * mass_beyond(target, discount, 2.0, 0.1)).tolist()
    assert fraction == pytest.approx(0.5 + 0 + 1)
    assert excess == pytest.approx(0.5 * 0.3 + 0 + 1 * 1)
    assert decay == pytest.approx(0.5 * 0.1 + 0 + 1 * 1)


@both_libraries
@pytest.mark.parametrize(("low", "high", "reward"), [(0, 100, 1.0), (-100, 0, -1.0)])
@pytest.mark.parametrize("steps", [1, 3])
def test_values_at_the_bound_of_all_returns_are_within(wrap, low, high, reward, steps, caplog):
    """As in tuned CartPole and Acrobot: a reward of 1 per step with gamma 0.99 sums to at most 100.
    All mass may then lie on the outermost atom, also with the rounding of float32."""
    atoms = np.linspace(low, high, 51, dtype=np.float32)
    rewards = np.full((8, 1), sum(0.99**k for k in range(steps)) * reward, np.float32)
    discount = np.full((8, 1), 0.99**steps, np.float32)
    mass = np.zeros((8, 51), np.float32)
    mass[:, -1 if reward > 0 else 0] = 1
    target = TargetDistribution(wrap(rewards + discount * atoms), wrap(mass))
    support = SupportCheck(low, high)
    for _ in range(9):
        metrics = support.check(target, wrap(discount))
        assert {name: float(value) for name, value in metrics.items()} == {
            "beyond_v_min": 0, "beyond_v_max": 0,
        }  # fmt: skip
    assert not caplog.records


@both_libraries
def test_a_bound_that_is_too_narrow_is_reported_once_with_a_better_value(wrap: Any, caplog):
    """A reward of 1.5 per step with gamma 0.9 sums to 15, but all mass lies on the atom at 10."""
    column, mass = wrap(np.ones((4, 1))), wrap(np.array([[0.0, 0.0, 1.0]] * 4))
    atoms = wrap(np.array([0.0, 5.0, 10.0]))
    support = SupportCheck(0.0, 10.0)
    for count in range(1, 20):
        metrics = support.check(TargetDistribution(1.5 * column + 0.9 * atoms, mass), 0.9 * column)
        assert (float(metrics["beyond_v_min"]), float(metrics["beyond_v_max"])) == (0, 1)
        assert len(caplog.records) == (count >= CHECKS)
    assert caplog.messages == [
        "agent.v_max=10 is too low: 100 % of the target probability was above it and was "
        "clipped to it, so those values cannot be distinguished. In a new run, try agent.v_max=15"
    ]


@both_libraries
def test_without_a_discount_the_range_is_doubled(wrap: Any, caplog):
    column, mass = wrap(np.ones((4, 1))), wrap(np.array([[1.0, 0.0]] * 4))
    atoms = wrap(np.array([-5.0, 5.0]))
    support = SupportCheck(-5.0, 5.0)
    for _ in range(CHECKS):
        support.check(TargetDistribution(atoms - column, mass), column)
    assert caplog.messages == [
        "agent.v_min=-5 is too high: 100 % of the target probability was below it and was "
        "clipped to it, so those values cannot be distinguished. In a new run, try agent.v_min=-15"
    ]


@both_libraries
def test_a_transient_overestimate_is_not_reported(wrap: Any, caplog):
    """An untrained network may predict 1 everywhere. Rewards alternate between 0.9 and -0.9, so
    the returns fit the range."""
    column, atoms = wrap(np.ones((8, 1))), wrap(np.linspace(-1, 1, 51))
    rewards = wrap(0.9 * np.array([[1.0], [-1.0]] * 4))
    high, learned_by_now = (wrap(np.zeros((8, 51))) for _ in range(2))
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
