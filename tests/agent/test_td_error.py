"""The formula of the update, on networks of one input and two actions."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from border_cli.agent.config import Loss
from border_cli.agent.dqn import td_error, weighted_loss
from border_cli.core.spaces import BoxSpace
from border_cli.nn.q_network import QNetwork
from border_cli.nn.tensor_batch import TensorBatch

ONE_NUMBER = BoxSpace(shape=(1,), dtype="float32", low=np.zeros(1), high=np.ones(1))


def network(weight: list[float], bias: list[float]) -> QNetwork:
    """Q(s, a) = weight[a] s + bias[a]."""
    q = QNetwork(ONE_NUMBER, [], 2, seed=0)
    q.load_state_dict(
        {
            "mlp.layers.0.weight": torch.tensor(weight)[:, None],
            "mlp.layers.0.bias": torch.tensor(bias),
        }
    )
    return q


ONLINE = ([2.0, -1.0], [1.0, 3.0])  # Q(1) = (3, 2); Q(2) = (5, 1)
TARGET = ([1.0, 3.0], [0.0, -1.0])  # Q_target(2) = (2, 5)

BATCH = TensorBatch(
    obs=torch.tensor([[1.0], [2.0]]),
    action=torch.tensor([0, 1]),
    reward=torch.tensor([1.0, -1.0]),
    discount=torch.tensor([0.5, 0.0]),  # the second row ended its episode
    next_obs=torch.tensor([[2.0], [100.0]]),
    weight=torch.ones(2),
)


def test_the_target_network_chooses_and_values_the_next_action():
    error, q = td_error(network(*ONLINE), network(*TARGET), BATCH, double=False)
    assert q.tolist() == [3, 1]
    assert error.tolist() == [1 + 0.5 * 5 - 3, -1 - 1]


def test_double_lets_the_online_network_choose_what_the_target_network_values():
    error, _ = td_error(network(*ONLINE), network(*TARGET), BATCH, double=True)
    assert error.tolist() == [1 + 0.5 * 2 - 3, -1 - 1]


@pytest.mark.parametrize("double", [False, True])
def test_the_gradient_flows_through_the_value_of_the_taken_action_only(double: bool):
    q, q_target = network(*ONLINE), network(*TARGET)
    error, _ = td_error(q, q_target, BATCH, double=double)
    weight, bias = torch.autograd.grad(error.sum(), list(q.parameters()), retain_graph=True)
    assert weight.tolist() == [[-1], [-2]]  # -s of the row that took this action
    assert bias.tolist() == [-1, -1]
    of_target = torch.autograd.grad(error.sum(), list(q_target.parameters()), allow_unused=True)
    assert of_target == (None, None)


def test_a_huber_loss_is_square_up_to_one_and_straight_beyond():
    error, weight = torch.tensor([0.5, -3.0]), torch.ones(2)
    assert float(weighted_loss(error, weight, Loss.huber)) == (0.5 * 0.25 + 2.5) / 2


def test_mse_is_the_square_without_a_half():
    error, weight = torch.tensor([0.5, -3.0]), torch.ones(2)
    assert float(weighted_loss(error, weight, Loss.mse)) == (0.25 + 9) / 2


@pytest.mark.parametrize(("kind", "expected"), [(Loss.huber, 0.375), (Loss.mse, 1.25)])
def test_weights_scale_the_loss_and_are_not_squared(kind: Loss, expected: float):
    error, weight = torch.tensor([0.5, -3.0]), torch.tensor([1.0, 0.25])
    assert float(weighted_loss(error, weight, kind)) == expected
