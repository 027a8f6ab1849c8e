"""The loss of DQN: by hand for two actions, against autograd and against rlax."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - as all of torch's users call it

from border_cli.agent import discrete_cql
from border_cli.agent.config import Loss
from border_cli.agent.discrete_cql import conservative_gap
from border_cli.agent.dqn import td_loss, td_target, weighted_loss
from border_cli.core.spaces import DictSpace, DiscreteSpace, Space
from border_cli.nn.architecture import Architecture
from border_cli.nn.dense import Gradient
from border_cli.nn.features import Features
from border_cli.nn.network import LearnedNetwork, Network
from border_cli.nn.tensor_batch import TDResult, TensorBatch
from tests.support.rlax_numbers import of_rlax, transitions_of
from tests.support.spaces import numbers
from tests.support.value_networks import q_network, td_of


def network(weight: list[float], bias: list[float]) -> Network:
    """Builds a network with Q(s, a) = weight[a] s + bias[a]."""
    q = q_network(numbers(1), [], 2, seed=0)
    q.load_state_dict(
        {
            "mlp.layers.0.weight": torch.tensor(weight)[:, None],
            "mlp.layers.0.bias": torch.tensor(bias),
        }
    )
    return q


def column(*values: float) -> torch.Tensor:
    return torch.tensor(values)[:, None]


def td_gradient(
    q: Network, q_target: Network, batch: TensorBatch, *, double: bool, **settings: Any
) -> tuple[Gradient, TDResult]:
    return td_of(q, q_target, batch, partial(td_loss, **settings), double=double)


ONLINE = ([2.0, -1.0], [1.0, 3.0])  # Q(1) = (3, 2); Q(2) = (5, 1)
TARGET = ([1.0, 3.0], [0.0, -1.0])  # Q_target(2) = (2, 5)

BATCH = TensorBatch(
    obs=column(1.0, 2.0),
    action=torch.tensor([[0], [1]]),
    reward=column(1.0, -1.0),
    discount=column(0.5, 0.0),  # the second transition is terminal
    next_obs=column(2.0, 100.0),
    weight=column(1.0, 1.0),
)


def test_the_target_network_chooses_and_values_the_next_action():
    q_next = torch.tensor([[2.0, 5.0], [100.0, 299.0]])
    assert td_target(BATCH, q_next, None).tolist() == [[1 + 0.5 * 5], [-1]]


def test_double_lets_the_online_network_choose_what_the_target_network_values():
    q_next = torch.tensor([[2.0, 5.0], [100.0, 299.0]])
    q_next_online = torch.tensor([[5.0, 1.0], [201.0, -97.0]])
    assert td_target(BATCH, q_next, q_next_online).tolist() == [[1 + 0.5 * 2], [-1]]


@pytest.mark.parametrize(("double", "first_error"), [(False, 3 - 3.5), (True, 3 - 2)])
def test_the_gradient_is_that_of_the_taken_action_alone(double: bool, first_error: float):
    gradient, result = td_gradient(
        network(*ONLINE), network(*TARGET), BATCH, double=double, loss=Loss.mse
    )
    assert result.td_error.tolist() == [[-first_error], [-(1 + 1)]]
    assert float(result.metrics["q_mean"]) == (3 + 1) / 2
    assert float(result.metrics["loss"]) == (first_error**2 + 4) / 2
    weight, bias = gradient  # gradient of the mean of two squares: error times input
    assert weight.tolist() == [[first_error * 1], [2 * 2]]
    assert bias.tolist() == [first_error, 2]


def test_a_huber_loss_is_square_up_to_one_and_straight_beyond():
    loss, grad_error = weighted_loss(column(0.5, -3.0), column(1.0, 1.0), Loss.huber)
    assert float(loss) == (0.5 * 0.25 + 2.5) / 2
    assert grad_error.tolist() == [[0.5 / 2], [-1 / 2]]


def test_mse_is_the_square_without_a_half():
    loss, grad_error = weighted_loss(column(0.5, -3.0), column(1.0, 1.0), Loss.mse)
    assert float(loss) == (0.25 + 9) / 2
    assert grad_error.tolist() == [[2 * 0.5 / 2], [2 * -3 / 2]]


@pytest.mark.parametrize(
    ("kind", "loss", "second_grad"), [(Loss.huber, 0.375, -1 / 8), (Loss.mse, 1.25, -6 / 8)]
)
def test_weights_scale_the_loss_and_are_not_squared(kind: Loss, loss: float, second_grad: float):
    mean, grad_error = weighted_loss(column(0.5, -3.0), column(1.0, 0.25), kind)
    assert float(mean) == loss
    assert float(grad_error[1]) == second_grad


MIXED = DictSpace({"speed": numbers(3), "level": DiscreteSpace(4)})


def random_batch(space: Space, rows: int = 16) -> TensorBatch:
    rng = torch.Generator().manual_seed(1)

    def obs() -> Any:
        if isinstance(space, DictSpace):
            return {
                "speed": torch.randn(rows, 3, generator=rng),
                "level": torch.randint(4, (rows,), generator=rng),
            }
        return torch.randn(rows, 3, generator=rng)

    return TensorBatch(
        obs=obs(),
        action=torch.randint(2, (rows, 1), generator=rng),
        reward=2 * torch.randn(rows, 1, generator=rng),
        discount=0.9 * torch.randint(2, (rows, 1), generator=rng),
        next_obs=obs(),
        weight=torch.rand(rows, 1, generator=rng),
    )


def autograd_loss(
    q: Network, q_target: Network, batch: TensorBatch, double: bool, loss: Loss, alpha: float
):
    q_all = q(batch.obs)
    q_sa = q_all.gather(1, batch.action)
    with torch.no_grad():
        q_next = q_target(batch.next_obs)
        best = (q(batch.next_obs) if double else q_next).argmax(1, keepdim=True)
        y = batch.reward + batch.discount * q_next.gather(1, best)
    of_row = F.huber_loss if loss == Loss.huber else F.mse_loss
    mean = (batch.weight * of_row(q_sa, y, reduction="none")).mean()
    gap = (batch.weight * (torch.logsumexp(q_all, 1, keepdim=True) - q_sa)).mean()
    return mean.detach(), torch.autograd.grad(mean + alpha * gap, list(q.parameters()))


@pytest.mark.parametrize("space", [numbers(3), MIXED], ids=["vector", "dict"])
@pytest.mark.parametrize("hidden", [[], [8], [32, 16]])
@pytest.mark.parametrize("double", [False, True])
@pytest.mark.parametrize("loss", list(Loss))
@pytest.mark.parametrize("alpha", [0.0, 0.7])
def test_loss_and_gradient_are_those_of_autograd(space, hidden, double, loss, alpha: float):
    q, q_target = (q_network(space, hidden, 2, seed) for seed in (1, 2))
    batch = random_batch(space)
    features = Features(Architecture(space), normalize=False)
    batch = batch._replace(obs=features(batch.obs), next_obs=features(batch.next_obs))
    expected_loss, expected = autograd_loss(q, q_target, batch, double, loss, alpha)
    formula = partial(td_loss, loss=loss)
    if alpha:
        formula = partial(discrete_cql.td_loss, td_loss=formula, weight=alpha, atoms=None)
    gradient, result = td_of(q, q_target, batch, formula, double=double)
    outputs = q(batch.obs)  # with autograd, the outputs are the cache
    from_outputs = LearnedNetwork.backward(q, outputs, result.grad_output)
    assert not any(tensor.requires_grad for tensor in (*gradient, *result.metrics.values()))
    torch.testing.assert_close(result.metrics["loss"], expected_loss, rtol=1e-6, atol=1e-6)
    for actual, actual_from_outputs, reference in zip(
        gradient, from_outputs, expected, strict=True
    ):
        torch.testing.assert_close(actual, reference, rtol=1e-6, atol=1e-6)
        torch.testing.assert_close(actual_from_outputs, reference, rtol=1e-6, atol=1e-6)


def test_the_conservative_part_by_hand():
    """With Q(s, ·) = (0, ln 3), logsumexp is ln 4 and softmax is (1/4, 3/4)."""
    q = torch.tensor([[0.0, math.log(3)]] * 2, dtype=torch.float64)
    action, weight = torch.tensor([[0], [1]]), torch.tensor([[1.0], [0.5]], dtype=torch.float64)
    gap, grad_q = conservative_gap(q, action, weight)
    assert float(gap) == pytest.approx((math.log(4) + 0.5 * math.log(4 / 3)) / 2)
    expected = np.array([[-3 / 4, 3 / 4], [1 / 8, -1 / 8]]) / 2
    np.testing.assert_allclose(grad_q, expected, rtol=1e-12)


@pytest.mark.parametrize("double", [False, True])
def test_errors_are_those_of_rlax(double: bool):
    case = of_rlax("dqn")
    online, expected = None, case["td_error"]
    if double:
        online, expected = case["q_next_online"], case["td_error double"]
    result = td_loss(case["q"], case["q_next"], online, transitions_of(case), loss=Loss.mse)
    np.testing.assert_allclose(result.td_error.squeeze(1), expected, rtol=1e-12)
    squares = float((case["weight"] * expected**2).mean())
    assert float(result.metrics["loss"]) == pytest.approx(squares, rel=1e-12)
