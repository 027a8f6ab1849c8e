"""The formula of C51: against rlax in double precision, by hand, and against autograd."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from oracle import by_row, rlax

from border_cli.agent.categorical import learned, project
from border_cli.nn.tensor_batch import TensorBatch

ROWS, ACTIONS, N = 12, 3, 7
ATOMS = torch.linspace(-2, 4, N, dtype=torch.float64)


def normal(rng: torch.Generator, *shape: int) -> torch.Tensor:
    return 2 * torch.randn(shape, generator=rng, dtype=torch.float64)


def draw(seed: int) -> tuple[dict[str, torch.Tensor], TensorBatch]:
    """Logits of three networks, and rows to go with them, some at the end of an episode."""
    rng = torch.Generator().manual_seed(seed)
    names = ("outputs", "next_outputs", "chooser")
    logits = {name: normal(rng, ROWS, ACTIONS * N) for name in names}
    batch = TensorBatch(
        obs=torch.zeros(0),
        action=torch.randint(ACTIONS, (ROWS, 1), generator=rng),
        reward=normal(rng, ROWS, 1),
        discount=0.9 * torch.randint(3, (ROWS, 1), generator=rng).clamp(max=1).double(),
        next_obs=torch.zeros(0),
        weight=torch.rand(ROWS, 1, generator=rng, dtype=torch.float64),
    )
    return logits, batch


def test_projections_are_those_of_rlax():
    rng = torch.Generator().manual_seed(0)
    positions = normal(rng, 40, N)  # beyond the outer atoms too
    probabilities = normal(rng, 40, N).softmax(1)
    with torch.no_grad():
        found = project(positions, probabilities, ATOMS)
    atoms = ATOMS.expand(40, N)
    expected = by_row(rlax.categorical_l2_project, positions, probabilities, atoms)
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-12)
    np.testing.assert_allclose(found.sum(1), np.ones(40), rtol=1e-12)


def test_mass_on_an_atom_stays_there_and_mass_between_two_is_shared():
    atoms = torch.tensor([0.0, 1.0, 2.0])
    positions = torch.tensor([[0.0, 1.0, 2.0], [0.25, 1.5, 9.0], [-3.0, 2.0, 2.0]])
    probabilities = torch.tensor([[0.5, 0.25, 0.25]]).expand(3, 3)
    expected = [[0.5, 0.25, 0.25], [0.375, 0.25, 0.375], [0.5, 0, 0.5]]
    assert project(positions, probabilities, atoms).tolist() == expected


@pytest.mark.filterwarnings("ignore:Rlax categorical_cross_entropy:PendingDeprecationWarning")
@pytest.mark.parametrize("double", [False, True])
def test_the_loss_is_that_of_rlax(double: bool):
    logits, batch = draw(1)
    shape = ROWS, ACTIONS, N
    atoms = ATOMS.expand(ROWS, N)
    action, reward, discount = (
        each.squeeze(1) for each in (batch.action, batch.reward, batch.discount)
    )
    given = atoms, logits["outputs"].view(shape), action, reward, discount, atoms
    next_logits = logits["next_outputs"].view(shape)
    if double:
        q = logits["chooser"].view(shape).softmax(2) @ ATOMS
        rows = by_row(rlax.categorical_double_q_learning, *given, next_logits, q)
    else:
        rows = by_row(rlax.categorical_q_learning, *given, next_logits)
    chooser = logits["chooser"] if double else None
    found = learned(logits["outputs"], logits["next_outputs"], chooser, batch, atoms=ATOMS)
    expected = (batch.weight.squeeze(1).numpy() * rows).mean()
    assert float(found.loss) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("alpha", [0.0, 0.6])
def test_the_slope_is_the_derivative_of_the_loss(alpha: float):
    """By finite differences, of the loss and of the conservative part beside it."""
    logits, batch = draw(2)
    step = 1e-6

    def at(outputs: torch.Tensor) -> Any:
        return learned(
            outputs, logits["next_outputs"], None, batch, atoms=ATOMS, conservative_weight=alpha
        )

    def total(outputs: torch.Tensor) -> float:
        found = at(outputs)
        return float(found.loss + (alpha * found.gap if alpha else 0))

    slope = at(logits["outputs"]).slope
    for row in range(3):
        for column in range(ACTIONS * N):
            up, down = logits["outputs"].clone(), logits["outputs"].clone()
            up[row, column] += step
            down[row, column] -= step
            expected = (total(up) - total(down)) / (2 * step)
            assert float(slope[row, column]) == pytest.approx(expected, rel=1e-6, abs=1e-9)


def test_the_error_is_the_divergence_from_the_target():
    """KL(m || p) = sum m ln(m / p): 0 where nothing is to be learned."""
    atoms = torch.tensor([0.0, 1.0])
    even, sure = torch.zeros(1, 2), torch.tensor([[0.0, 40.0]])
    column = torch.ones(1, 1)
    batch = TensorBatch(
        obs=even, action=torch.zeros(1, 1, dtype=torch.int64), reward=column / 4,
        discount=column * 0, next_obs=even, weight=column / 2,
    )  # fmt: skip
    found = learned(torch.log(torch.tensor([[0.75, 0.25]])), even, None, batch, atoms=atoms)
    assert found.error.item() == pytest.approx(0, abs=1e-7)
    assert found.q_mean.item() == pytest.approx(0.25)
    np.testing.assert_allclose(found.slope, np.zeros((1, 2)), atol=1e-7)
    found = learned(even, sure, None, batch._replace(discount=column), atoms=atoms)
    # 1.25 is beyond the last atom, so that m = (0, 1), where p = (1/2, 1/2)
    assert found.error.item() == pytest.approx(np.log(2))
    assert found.loss.item() == pytest.approx(np.log(2) / 2)
    np.testing.assert_allclose(found.slope, [[0.25, -0.25]], rtol=1e-6)
