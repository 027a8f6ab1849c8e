"""The loss of DQN in numpy and torch: by hand for two actions, against autograd and rlax."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - as all of torch's users call it
from numpy.typing import NDArray

from border_cli.agent import discrete_cql
from border_cli.agent.config import Loss
from border_cli.agent.discrete_cql import conservative_gap
from border_cli.agent.dqn import td_loss, td_target, weighted_loss
from border_cli.core.spaces import DictSpace, DiscreteSpace, Space
from border_cli.nn.architecture import Architecture
from border_cli.nn.backend import LearnedNetwork
from border_cli.nn.batch import TensorBatch
from border_cli.nn.features import Features
from border_cli.nn.network import Network
from border_cli.nn.numpy_learner import DenseNetwork
from border_cli.nn.tensors import to_arrays, to_tensors
from tests.support.libraries import LIBRARIES, both_backends, both_libraries
from tests.support.rlax_numbers import of_rlax, transitions_of
from tests.support.spaces import numbers
from tests.support.value_networks import td_of

NETWORKS: dict[str, Any] = {"numpy": DenseNetwork, "torch": Network}


def network(backend: str, weight: list[float], bias: list[float]) -> LearnedNetwork:
    """Builds a network with Q(s, a) = weight[a] s + bias[a]."""
    q = NETWORKS[backend](Architecture(numbers(1), hidden=()), 2, np.random.default_rng(0))
    saved = {"mlp.layers.0.weight": np.array(weight)[:, None], "mlp.layers.0.bias": np.array(bias)}
    q.load_state_dict(saved if backend == "numpy" else to_tensors(saved))
    return q


def column(*values: float) -> NDArray[np.float32]:
    return np.array(values, np.float32)[:, None]


ONLINE = ([2.0, -1.0], [1.0, 3.0])  # Q(1) = (3, 2); Q(2) = (5, 1)
TARGET = ([1.0, 3.0], [0.0, -1.0])  # Q_target(2) = (2, 5)


def batch_of(wrap: Any) -> TensorBatch:
    columns = {
        "obs": column(1.0, 2.0),
        "action": np.array([[0], [1]]),
        "reward": column(1.0, -1.0),
        "discount": column(0.5, 0.0),  # the second transition is terminal
        "next_obs": column(2.0, 100.0),
        "weight": column(1.0, 1.0),
    }
    return TensorBatch(**{name: wrap(values) for name, values in columns.items()})


Q_NEXT = np.array([[2.0, 5.0], [100.0, 299.0]])
Q_NEXT_ONLINE = np.array([[5.0, 1.0], [201.0, -97.0]])


@both_libraries
def test_the_target_network_chooses_and_values_the_next_action(wrap: Any):
    assert td_target(batch_of(wrap), wrap(Q_NEXT), None).tolist() == [[1 + 0.5 * 5], [-1]]


@both_libraries
def test_double_lets_the_online_network_choose_what_the_target_network_values(wrap: Any):
    target = td_target(batch_of(wrap), wrap(Q_NEXT), wrap(Q_NEXT_ONLINE))
    assert target.tolist() == [[1 + 0.5 * 2], [-1]]


@both_backends
@pytest.mark.parametrize(("double", "first_error"), [(False, 3 - 3.5), (True, 3 - 2)])
def test_the_gradient_is_that_of_the_taken_action_alone(
    backend: str, double: bool, first_error: float
):
    online, target = network(backend, *ONLINE), network(backend, *TARGET)
    formula = partial(td_loss, loss=Loss.mse)
    batch = batch_of(LIBRARIES[backend])
    (weight, bias), result = td_of(online, target, batch, formula, double=double)
    assert result.td_error.tolist() == [[-first_error], [-(1 + 1)]]
    assert float(result.metrics["q_mean"]) == (3 + 1) / 2
    assert float(result.metrics["loss"]) == (first_error**2 + 4) / 2
    # gradient of the mean of two squares: error times input
    assert weight.tolist() == [[first_error * 1], [2 * 2]]
    assert bias.tolist() == [first_error, 2]


@both_libraries
def test_a_huber_loss_is_square_up_to_one_and_straight_beyond(wrap: Any):
    loss, grad_error = weighted_loss(wrap(column(0.5, -3.0)), wrap(column(1.0, 1.0)), Loss.huber)
    assert float(loss) == (0.5 * 0.25 + 2.5) / 2
    assert grad_error.tolist() == [[0.5 / 2], [-1 / 2]]


@both_libraries
def test_mse_is_the_square_without_a_half(wrap: Any):
    loss, grad_error = weighted_loss(wrap(column(0.5, -3.0)), wrap(column(1.0, 1.0)), Loss.mse)
    assert float(loss) == (0.25 + 9) / 2
    assert grad_error.tolist() == [[2 * 0.5 / 2], [2 * -3 / 2]]


@both_libraries
@pytest.mark.parametrize(
    ("kind", "loss", "second_grad"), [(Loss.huber, 0.375, -1 / 8), (Loss.mse, 1.25, -6 / 8)]
)
def test_weights_scale_the_loss_and_are_not_squared(
    wrap: Any, kind: Loss, loss: float, second_grad: float
):
    mean, grad_error = weighted_loss(wrap(column(0.5, -3.0)), wrap(column(1.0, 0.25)), kind)
    assert float(mean) == loss
    assert grad_error[1].item() == second_grad


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


@both_backends
@pytest.mark.parametrize("space", [numbers(3), MIXED], ids=["vector", "dict"])
@pytest.mark.parametrize("hidden", [[], [8], [32, 16]])
@pytest.mark.parametrize("double", [False, True])
@pytest.mark.parametrize("loss", list(Loss))
@pytest.mark.parametrize("alpha", [0.0, 0.7])
def test_loss_and_gradient_are_those_of_autograd(
    backend: str, space, hidden, double, loss, alpha: float
):
    """A seed gives the same weights in numpy and torch."""
    architecture = Architecture(space, hidden=tuple(hidden))
    online, target, expected_online, expected_target = (
        NETWORKS[kind](architecture, 2, np.random.default_rng(seed))
        for kind, seed in [(backend, 1), (backend, 2), ("torch", 1), ("torch", 2)]
    )
    batch = random_batch(space)
    features = Features(architecture, normalize=False)
    batch = batch._replace(obs=features(batch.obs), next_obs=features(batch.next_obs))
    expected_loss, expected = autograd_loss(
        expected_online, expected_target, batch, double, loss, alpha
    )
    if backend == "numpy":
        batch = TensorBatch(*(to_arrays(part) for part in batch))
    formula = partial(td_loss, loss=loss)
    if alpha:
        formula = partial(discrete_cql.td_loss, td_loss=formula, weight=alpha, atoms=None)
    gradient, result = td_of(online, target, batch, formula, double=double)
    values = *gradient, *result.metrics.values()
    assert not any(getattr(value, "requires_grad", False) for value in values)
    assert float(result.metrics["loss"]) == pytest.approx(float(expected_loss), rel=1e-6, abs=1e-6)
    for actual, reference in zip(gradient, expected, strict=True):
        np.testing.assert_allclose(actual, reference, rtol=1e-6, atol=1e-6)


@both_libraries
def test_the_conservative_part_by_hand(wrap: Any):
    """With Q(s, ·) = (0, ln 3), logsumexp is ln 4 and softmax is (1/4, 3/4)."""
    arrays = np.array([[0.0, math.log(3)]] * 2), np.array([[0], [1]]), np.array([[1.0], [0.5]])
    gap, grad_q = conservative_gap(*map(wrap, arrays))
    assert float(gap) == pytest.approx((math.log(4) + 0.5 * math.log(4 / 3)) / 2)
    expected = np.array([[-3 / 4, 3 / 4], [1 / 8, -1 / 8]]) / 2
    np.testing.assert_allclose(grad_q, expected, rtol=1e-12)


@both_libraries
@pytest.mark.parametrize("double", [False, True])
def test_errors_are_those_of_rlax(wrap: Any, double: bool):
    case = of_rlax("dqn", wrap)
    online, expected = None, case["td_error"]
    if double:
        online, expected = case["q_next_online"], case["td_error double"]
    result = td_loss(case["q"], case["q_next"], online, transitions_of(case), loss=Loss.mse)
    np.testing.assert_allclose(result.td_error[:, 0], expected, rtol=1e-12)
    squares = float((case["weight"] * expected**2).mean())
    assert float(result.metrics["loss"]) == pytest.approx(squares, rel=1e-12)
