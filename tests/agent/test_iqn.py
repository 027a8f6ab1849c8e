"""Implicit quantile networks: the loss against rlax, gradients, and known answers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from border_cli.agent.config import IqnConfig
from border_cli.agent.iqn import Iqn, iqn_td
from border_cli.core.spaces import EnvSpec
from border_cli.nn.architecture import Architecture
from border_cli.nn.network import target_of
from border_cli.nn.quantile_network import QuantileNetwork
from tests.support.case_sampling import sampled
from tests.support.finite_differences import slope
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

INPUTS, ACTIONS, ROWS = 2, 3, 6
ACTING = torch.tensor([[0.1, 0.3, 0.5, 0.7, 0.9]], dtype=torch.float64)
QUICK: dict[str, Any] = {
    **{"hidden": [32, 32], "embedding_size": 32, "target_interval": 20, "tau": 1.0},
    **{"num_quantiles_online": 64, "num_quantiles_target": 16},
}
STAGES = [(1e-2, 300), (1e-3, 400), (1e-4, 300)]


def network(seed: int) -> QuantileNetwork:
    architecture = Architecture(numbers(INPUTS), hidden=(4, 3))
    return QuantileNetwork(architecture, 3, ACTIONS, np.random.default_rng(seed)).double()


def iqn(spec: EnvSpec, seed: int = 0, **settings: Any) -> Iqn:
    return Iqn(IqnConfig(**{"hidden": [9, 4], **settings}), spec=spec, device="cpu", seed=seed)


def fake_network(quantiles: torch.Tensor, choosing: torch.Tensor) -> Any:
    """A fake network that returns `quantiles` and selects actions by the mean of `choosing`."""
    return SimpleNamespace(
        forward_with_cache=lambda *_: (quantiles, None),
        embed=lambda obs: obs,
        means=lambda *_: choosing.mean(1),
        quantiles=lambda *_: quantiles,
    )


@pytest.mark.parametrize("double", [False, True])
@pytest.mark.parametrize("kappa", [0.2, 1.0])
def test_the_loss_is_that_of_rlax(kappa: float, double: bool):
    case = of_rlax("iqn")
    chooser, fractions = case["chooser"], case["fractions"]
    online = fake_network(case["outputs"], chooser if double else -chooser)
    target = fake_network(case["next"], -chooser if double else chooser)
    batch = transitions_of(case)
    _, result = iqn_td(
        online, target, batch, fractions, fractions, ACTING, double=double, kappa=kappa
    )
    expected = weighted_mean(case, f"loss {kappa}") / kappa
    assert result.metrics["loss"].item() == pytest.approx(expected, rel=1e-12)


def test_the_priority_of_a_row_is_how_far_its_quantiles_are_from_those_of_its_target(
    spec: EnvSpec, make_batch: Any
):
    """The mean over all pairs. All transitions are terminal, so the target is the reward."""
    agent, rows = iqn(spec, num_quantiles_online=5), make_batch(0)
    rows.discount[:] = 0
    noise = agent.backend.noise.get_state()
    fractions = agent.backend.uniform(8, 5)
    agent.backend.noise.set_state(noise)
    with torch.no_grad():
        quantiles = agent.online(torch.from_numpy(rows.obs), fractions)[range(8), :, rows.action]
    expected = np.abs(rows.reward[:, None] - quantiles.numpy()).mean(1)
    np.testing.assert_allclose(agent.update(rows).td_error(), expected, rtol=1e-5)


def test_the_gradient_is_that_of_finite_differences():
    batch, fractions = drawn_rows(1, ROWS, INPUTS, ACTIONS), of_rlax("iqn")["fractions"]
    online, target = network(2), target_of(network(3))

    def td() -> Any:
        return iqn_td(online, target, batch, fractions, fractions, ACTING, double=False, kappa=0.7)

    cache, result = td()
    gradient = online.backward(cache, result.grad_output)
    flat = torch.cat([part.reshape(-1) for part in gradient])

    def loss() -> Any:
        return td()[1].metrics["loss"]

    numeric = np.concatenate([slope(loss, parameter).ravel() for parameter in online.parameters()])
    np.testing.assert_allclose(flat, numeric, rtol=1e-6, atol=1e-8)


@pytest.mark.slow
@pytest.mark.parametrize("double", sampled([True, False], every=2))
def test_the_values_of_a_chain_are_found(double: bool):
    agent = trained(
        lambda learning_rate: iqn(CHAIN, **QUICK, double=double, learning_rate=learning_rate),
        LINKS,
        [(3e-3, 500), (5e-4, 300)],
    )
    values, actions = values_and_actions(agent, 3)
    np.testing.assert_allclose(values, CHAIN_VALUES, atol=0.01)
    assert actions == [1, 1, 1]


@pytest.mark.parametrize(
    ("risk_high", "values", "actions"),
    sampled(
        [(1.0, [[0.2, 0.5], [0.4, 0.5]], [1, 1]), (0.25, [[0.2, 0.4], [0.4, 0]], [1, 0])], every=2
    ),
)
def test_a_gamble_is_taken_by_its_mean_and_left_by_its_worst_quarter(risk_high, values, actions):
    def make(learning_rate: float) -> Iqn:
        settings = {"kappa": 0.0, "risk_high": risk_high, "double": False}
        return iqn(RISKY, **QUICK | settings, learning_rate=learning_rate)

    agent = trained(make, RISKS, STAGES)
    learned, chosen = values_and_actions(agent, 2)
    np.testing.assert_allclose(learned, values, atol=0.03)
    assert chosen == actions
    fractions = torch.tensor([[0.125, 0.25, 0.375, 0.625, 0.75, 0.875]])  # none at the jump at 0.5
    with torch.no_grad():
        quantiles = agent.online(torch.eye(2), fractions)  # [state, fraction, action]
    np.testing.assert_allclose(quantiles[1, :, 1], [0, 0, 0, 1, 1, 1], atol=0.03)
    # Action 1 of state 0 is worth as much as the action selected in state 1.
    expected = [0, 0, 0, 1, 1, 1] if actions[1] else [0.4] * 6
    np.testing.assert_allclose(quantiles[0, :, 1], expected, atol=0.03)


@pytest.mark.parametrize(("low", "high"), [(0.0, 1.0), (0.0, 0.25), (0.6, 0.7)])
def test_acting_in_numpy_takes_the_mean_over_the_range_of_what_torch_gives(spec, low, high):
    settings = {"risk_low": low, "risk_high": high, "num_quantiles_acting": 5}
    agent = iqn(spec, 3, **settings)
    policy = policy_of(agent)
    obs = np.random.default_rng(1).standard_normal((300, 3)).astype(np.float32)
    fractions = low + (high - low) * torch.tensor([[0.1, 0.3, 0.5, 0.7, 0.9]])
    with torch.no_grad():
        q = agent.online(torch.from_numpy(obs), fractions).mean(1).numpy()  # [300, 2]
    np.testing.assert_allclose(policy.network(obs), q, rtol=1e-4, atol=1e-5)
    assert (policy.act(obs, explore=False) == q.argmax(1)).mean() > 0.98


def test_every_update_draws_its_own_fractions_from_the_seed(spec, make_batch):
    def losses(seed: int) -> list[float]:
        agent = iqn(spec, seed, learning_rate=1e-9)
        return [float(agent.update(make_batch(0)).metrics["loss"]) for _ in range(3)]

    assert losses(1) == losses(1)
    assert losses(1) != losses(2)
    assert len(set(losses(1))) == 3


def test_counts_of_fractions_are_those_of_the_settings(spec, make_batch, monkeypatch):
    shapes: list[tuple[int, ...]] = []
    agent = iqn(spec, num_quantiles_online=3, num_quantiles_target=5, num_quantiles_acting=4)
    draw = agent.backend.uniform
    monkeypatch.setattr(
        agent.backend, "uniform", lambda *shape: shapes.append(shape) or draw(*shape)
    )
    agent.update(make_batch(0, rows=6))
    assert shapes == [(6, 3), (6, 5)]
    assert IqnConfig(num_quantiles_acting=4).fractions == [0.125, 0.375, 0.625, 0.875]
    assert IqnConfig(num_quantiles_acting=1, risk_low=0.5).fractions == [0.75]
    assert agent.state_dict()["online"]["phi.weight"].shape == (9, 64)
