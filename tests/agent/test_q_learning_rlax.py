"""The formula in double precision: against rlax, and its conservative part by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from oracle import by_row, rlax

from border_cli.agent.config import Loss
from border_cli.agent.cql import conservative_gap
from border_cli.agent.dqn import td_loss
from border_cli.nn.tensor_batch import TensorBatch


def test_the_conservative_part_by_hand():
    """Q(s, ·) = (0, ln 3): logsumexp is ln 4, softmax (1/4, 3/4)."""
    q = torch.tensor([[0.0, math.log(3)]] * 2, dtype=torch.float64)
    action, weight = torch.tensor([[0], [1]]), torch.tensor([[1.0], [0.5]], dtype=torch.float64)
    gap, grad_q = conservative_gap(q, action, weight)
    assert float(gap) == pytest.approx((math.log(4) + 0.5 * math.log(4 / 3)) / 2)
    expected = np.array([[-3 / 4, 3 / 4], [1 / 8, -1 / 8]]) / 2
    np.testing.assert_allclose(grad_q, expected, rtol=1e-12)


def in_double_precision(seed: int, actions: int = 4, rows: int = 16) -> dict[str, torch.Tensor]:
    rng = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> torch.Tensor:
        return 2 * torch.randn(shape, generator=rng, dtype=torch.float64)

    return {
        **{name: normal(rows, actions) for name in ("q", "q_next", "q_next_online")},
        "reward": normal(rows, 1),
        "action": torch.randint(actions, (rows, 1), generator=rng),
        "discount": 0.9 * torch.randint(2, (rows, 1), generator=rng).double(),
        "weight": torch.rand(rows, 1, generator=rng, dtype=torch.float64),
    }


@pytest.mark.parametrize("double", [False, True])
def test_errors_are_those_of_rlax(double: bool):
    drawn = in_double_precision(3)
    action, reward, discount = (drawn[name].squeeze(1) for name in ("action", "reward", "discount"))
    if double:
        expected = by_row(
            rlax.double_q_learning,
            *(drawn["q"], action, reward, discount, drawn["q_next"], drawn["q_next_online"]),
        )
    else:
        expected = by_row(rlax.q_learning, drawn["q"], action, reward, discount, drawn["q_next"])
    batch = TensorBatch(
        obs=drawn["q"], next_obs=drawn["q"],
        **{name: drawn[name] for name in ("action", "reward", "discount", "weight")},
    )  # fmt: skip
    online = drawn["q_next_online"] if double else None
    found = td_loss(drawn["q"], drawn["q_next"], online, batch, loss=Loss.mse)
    np.testing.assert_allclose(found.td_error.squeeze(1), expected, rtol=1e-12)
    squares = drawn["weight"].squeeze(1).numpy() * np.array(expected) ** 2
    assert float(found.loss) == pytest.approx(squares.mean(), rel=1e-12)
