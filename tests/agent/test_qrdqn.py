"""QR-DQN in numpy and torch: the loss against rlax, gradients, and known distributions."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from border_cli.agent.config import QrdqnConfig
from border_cli.agent.qrdqn import Qrdqn, distance, quantile_regression, td_loss
from border_cli.core.spaces import EnvSpec
from border_cli.errors import ConfigError
from border_cli.nn.architecture import Architecture
from border_cli.nn.batch import TensorBatch
from border_cli.nn.network import Network, target_of
from tests.support.finite_differences import slope
from tests.support.libraries import both_backends, both_libraries
from tests.support.policies import policy_of
from tests.support.quantile_agents import (
    CHAIN,
    CHAIN_VALUES,
    LINKS,
    RISKS,
    RISKY,
    drawn_rows,
    trained,
    values_and_actions,
)
from tests.support.rlax_numbers import of_rlax, transitions_of, weighted_mean
from tests.support.spaces import numbers
from tests.support.value_networks import td_of


def row(*values: float) -> NDArray[np.float64]:
    return np.array([values], np.float64)


@both_libraries
@pytest.mark.parametrize("kappa", [0.0, 0.3, 1.0, 2.5])
def test_the_loss_is_that_of_rlax_divided_by_kappa(wrap: Any, kappa: float):
    case = of_rlax("quantile_regression", wrap)
    inputs = case["quantiles"], case["fractions"], case["target"], case["weight"][:, None]
    expected = weighted_mean(case, f"loss {kappa}") / (kappa or 1)
    result = quantile_regression(*inputs, kappa)
    assert result.loss.item() == pytest.approx(expected, rel=1e-12)


@both_libraries
def test_one_row_by_hand(wrap: Any):
    """At fraction 1/4, error 2 costs 1/4 (2 - 1/2) and error -1/2 costs 3/4 (1/2)^2 / 2."""
    inputs = [wrap(part) for part in (row(0), row(0.25), row(2, -0.5), row(2))]
    huber = quantile_regression(*inputs, 1.0)
    assert huber.loss.item() == 2 * (0.375 + 0.09375) / 2
    assert huber.grad_output.tolist() == [[-2 * (0.25 - 0.375) / 2]]
    absolute = quantile_regression(*inputs, 0.0)
    assert absolute.loss.item() == 2 * (0.25 * 2 + 0.75 * 0.5) / 2
    assert absolute.grad_output.tolist() == [[-2 * (0.25 - 0.75) / 2]]


@both_libraries
@pytest.mark.parametrize("kappa", [0.0, 0.4, 1.0])
def test_the_slope_is_the_derivative_of_the_loss(wrap: Any, kappa: float):
    case = of_rlax("quantile_regression", wrap)
    inputs = case["quantiles"], case["fractions"], case["target"], case["weight"][:, None]

    def result() -> Any:
        return quantile_regression(*inputs, kappa)

    numeric = slope(lambda: result().loss, inputs[0])
    np.testing.assert_allclose(result().grad_output, numeric, rtol=1e-6, atol=1e-9)


@both_libraries
def test_the_distance_of_a_row_is_the_mean_over_all_pairs(wrap: Any):
    assert distance(wrap(row(0, 2)), wrap(row(1, 3))).tolist() == [(1 + 3 + 1 + 1) / 4]


INPUTS, ACTIONS, QUANTILES = 2, 3, 4
FRACTIONS = torch.tensor([0.125, 0.375, 0.625, 0.875], dtype=torch.float64)
EQUAL = torch.full((QUANTILES,), 0.25, dtype=torch.float64)
# Training stages are multiples of the interval, so that the target is up to date at their end.
FOLLOWING = {"target_interval": 20, "tau": 1.0}
QUICK: dict[str, Any] = {"hidden": [32], "num_quantiles": 8, **FOLLOWING}


def network(seed: int) -> Network:
    architecture = Architecture(numbers(INPUTS), hidden=(3,))
    return Network(architecture, ACTIONS * QUANTILES, np.random.default_rng(seed)).double()


def qrdqn(spec: EnvSpec, seed: int = 0, **settings: Any) -> Qrdqn:
    return Qrdqn(QrdqnConfig(**{"hidden": [9, 4], **settings}), spec=spec, device="cpu", seed=seed)


def quantiles_of(agent: Qrdqn, rows: NDArray[np.float32]) -> NDArray[np.float32]:
    """Returns the quantiles that the learner predicts. [N, inputs] -> [N, num_actions, N']"""
    outputs = np.asarray(agent.online.predict(agent.backend.tensor(rows)))
    return outputs.reshape(len(rows), agent.num_actions, -1)


@both_libraries
@pytest.mark.parametrize("kappa", [0.2, 1.0])
def test_the_loss_is_that_of_rlax(wrap: Any, kappa: float):
    case = of_rlax("qrdqn", wrap)
    outputs, q_next, online_next = (
        case[name].swapaxes(1, 2).reshape(len(case[name]), -1)
        for name in ("outputs", "next", "chooser")
    )  # [B, num_actions * N]
    batch, fractions = transitions_of(case), case["fractions"][0]
    shares = wrap(EQUAL.numpy())
    result = td_loss(
        outputs, q_next, online_next, batch, fractions=fractions, shares=shares, kappa=kappa
    )
    expected = weighted_mean(case, f"loss {kappa}") / kappa
    assert result.metrics["loss"].item() == pytest.approx(expected, rel=1e-12)
    chosen = case["outputs"][range(len(outputs)), :, case["action"]]
    assert result.metrics["q_mean"].item() == pytest.approx(chosen.mean().item())


def test_the_priority_of_a_row_is_how_far_its_quantiles_are_from_those_of_its_target():
    """The mean over all pairs. All transitions are terminal, so the target is the reward."""
    batch = drawn_rows(0, 6, INPUTS, ACTIONS)
    batch.discount.zero_()
    outputs = network(0)(batch.obs)
    result = td_loss(outputs, outputs, None, batch, fractions=FRACTIONS, shares=EQUAL, kappa=1.0)
    quantiles = outputs.view(6, ACTIONS, QUANTILES)[range(6), batch.action[:, 0]]  # [6, N]
    torch.testing.assert_close(result.td_error[:, 0], (batch.reward - quantiles).abs().mean(1))


@pytest.mark.parametrize("double", [False, True])
def test_the_gradient_is_that_of_finite_differences(double: bool):
    online, target, batch = network(2), target_of(network(3)), drawn_rows(1, 6, INPUTS, ACTIONS)
    formula = partial(td_loss, fractions=FRACTIONS, shares=EQUAL, kappa=0.7)
    gradient, _ = td_of(online, target, batch, formula, double=double)

    def loss() -> torch.Tensor:
        return td_of(online, target, batch, formula, double=double)[1].metrics["loss"]

    # Small weight changes do not move the target: with `double`, the same actions are selected.
    numeric = np.concatenate([slope(loss, parameter).ravel() for parameter in online.parameters()])
    flat = torch.cat([part.reshape(-1) for part in gradient])
    np.testing.assert_allclose(flat, numeric, rtol=1e-6, atol=1e-8)


@both_libraries
def test_the_next_action_is_chosen_by_the_range(wrap: Any):
    """Action 0 has quantiles 0 and 10; action 1 has 4 and 4."""
    zero, one = wrap(np.zeros((1, 1))), wrap(np.ones((1, 1)))
    action = wrap(np.zeros((1, 1), np.int64))
    batch = TensorBatch(zero, action, reward=zero, discount=one, next_obs=zero, weight=one)
    q_next, fractions = wrap(np.array([[0.0, 10, 4, 4]])), wrap(np.array([0.25, 0.75]))
    for shares, apart in (([0.5, 0.5], 5), ([1.0, 0.0], 4)):  # mean distances from 0
        formula = partial(td_loss, fractions=fractions, shares=wrap(np.array(shares)), kappa=1.0)
        for online_next in (q_next, None):
            result = formula(wrap(np.zeros((1, 4))), q_next, online_next, batch)
            assert result.td_error.item() == apart


@pytest.mark.slow
@pytest.mark.parametrize("double", [False, True])
@pytest.mark.parametrize(("target_interval", "tau"), [(20, 1.0), (1, 0.05)])
def test_the_values_of_a_chain_are_found(double: bool, target_interval: int, tau: float):
    followed = {"target_interval": target_interval, "tau": tau}
    agent = qrdqn(CHAIN, **QUICK | followed, double=double, learning_rate=0.01)
    for _ in range(800):
        agent.update(LINKS)
    values, actions = values_and_actions(agent, 3)
    np.testing.assert_allclose(values, CHAIN_VALUES, atol=0.01)
    assert actions == [1, 1, 1]


@pytest.mark.parametrize(
    ("risk_high", "values", "actions"),
    [(1.0, [[0.2, 0.5], [0.4, 0.5]], [1, 1]), (0.25, [[0.2, 0.4], [0.4, 0]], [1, 0])],
)
def test_a_gamble_is_taken_by_its_mean_and_left_by_its_worst_quarter(risk_high, values, actions):
    def make(learning_rate: float) -> Qrdqn:
        settings = {"kappa": 0.0, "risk_high": risk_high, "learning_rate": learning_rate}
        return qrdqn(RISKY, **QUICK | settings)

    agent = trained(make, RISKS, [(3e-3, 400), (3e-4, 400), (3e-5, 200)])
    learned, chosen = values_and_actions(agent, 2)
    np.testing.assert_allclose(learned, values, atol=0.01)
    assert chosen == actions
    quantiles = quantiles_of(agent, np.eye(2, dtype=np.float32))
    np.testing.assert_allclose(quantiles[1], [[0.4] * 8, [0] * 4 + [1] * 4], atol=0.01)
    # Action 1 of state 0 is worth as much as the action selected in state 1.
    gamble = [0] * 4 + [1] * 4
    np.testing.assert_allclose(quantiles[0, 1], gamble if actions[1] else [0.4] * 8, atol=0.01)


def test_kappa_moves_the_quantiles_of_a_gamble_to_where_its_loss_is_lowest():
    """For outcomes 0 and 1 with kappa 1, tau (1 - q) = (1 - tau) q, so q is tau, not 0 or 1."""
    agent = qrdqn(RISKY, **QUICK, learning_rate=0.01)
    for _ in range(800):
        agent.update(RISKS)
    quantiles = quantiles_of(agent, np.eye(2, dtype=np.float32))
    np.testing.assert_allclose(quantiles[1, 1], (np.arange(8) + 0.5) / 8, atol=0.01)


@both_backends
@pytest.mark.parametrize(("low", "high"), [(0.0, 1.0), (0.0, 0.25), (0.3, 0.7)])
@pytest.mark.parametrize("hidden", [[], [7], [7, 6]])
def test_acting_takes_the_mean_over_the_range_of_what_the_learner_gives(
    spec, low, high, hidden, backend: str
):
    settings = {"risk_low": low, "risk_high": high, "num_quantiles": 5, "hidden": hidden}
    agent = qrdqn(spec, 3, backend=backend, **settings)
    policy = policy_of(agent)
    obs = np.random.default_rng(1).standard_normal((300, 3)).astype(np.float32)
    quantiles = quantiles_of(agent, obs)
    # Each quantile covers a fifth of [0, 1]; 10,000 points of the range approximate its weight.
    points = low + (high - low) * (np.arange(10_000) + 0.5) / 10_000
    q = quantiles[:, :, (points * 5).astype(int)].mean(2)  # [300, 2]
    np.testing.assert_allclose(policy.network(obs), q, rtol=1e-3, atol=1e-4)
    assert (policy.act(obs, explore=False) == q.argmax(1)).mean() > 0.98


def test_shares_of_a_range_are_exact():
    assert QrdqnConfig(num_quantiles=4).mean_weights == [0.25] * 4
    assert QrdqnConfig(num_quantiles=4, risk_high=0.25).mean_weights == [1, 0, 0, 0]
    shares = QrdqnConfig(num_quantiles=2, risk_low=0.25, risk_high=0.75).mean_weights
    assert shares == [0.5, 0.5]
    assert QrdqnConfig(num_quantiles=2, risk_high=0.75).mean_weights == pytest.approx(
        [2 / 3, 1 / 3]
    )
    assert QrdqnConfig(num_quantiles=2).fractions == [0.25, 0.75]


@pytest.mark.parametrize("low", [0.5, 0.6])
def test_a_range_without_width_is_refused(low: float):
    with pytest.raises(
        ConfigError, match=r"agent\.risk_high must be above agent\.risk_low=0\.[56]"
    ):
        QrdqnConfig(risk_low=low, risk_high=0.5)
