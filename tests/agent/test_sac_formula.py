"""Targets and losses of soft actor-critic by hand, in numpy and by finite differences."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from border_cli.agent.config import SacConfig
from border_cli.agent.sac import (
    ActorNoise,
    CriticNoise,
    EntropyCoefficient,
    policy_loss,
    soft_target,
)
from border_cli.nn.batch import TensorBatch
from tests.support.finite_differences import assert_slopes
from tests.support.offline_agents import critic, double, in_double, sampled
from tests.support.soft_agents import KINDS, agent_of, sac

ENT_COEF = torch.tensor(0.3, dtype=torch.float64)


def rows(reward: list[float], discount: list[float]) -> TensorBatch:
    columns = [double(column)[:, None] for column in (reward, discount)]
    nothing = torch.zeros(len(reward), 1, dtype=torch.float64)
    return TensorBatch(nothing, nothing, *columns, nothing, nothing)


def test_a_target_is_the_smallest_value_and_the_entropy_discounted():
    q_next = double([[[2.0], [5.0]], [[3.0], [4.0]]])
    target = soft_target(rows([1, -1], [0.9, 0]), q_next, double([[-0.5], [2.0]]), ENT_COEF)
    # 1 + 0.9 (2 + 0.3 * 0.5); the second transition is terminal
    np.testing.assert_allclose(target, [[2.935], [-1]], rtol=1e-12)


def test_the_actor_weighs_entropy_against_value():
    value, log_prob, weight = double([[2.0], [-1.0]]), double([[1.0], [3.0]]), double([[1], [0.5]])
    result = policy_loss(value, log_prob, ENT_COEF, weight)
    # (1 (0.3 - 2) + 0.5 (0.9 + 1)) / 2
    assert result.loss.item() == pytest.approx(-0.375, rel=1e-12)
    assert torch.equal(result.log_prob, log_prob)


def normal(seed: int) -> Tensor:
    return double(np.random.default_rng(seed).normal(size=(8, 2)))


def numbers(rows: TensorBatch) -> dict[str, Any]:
    return {name: column.numpy() for name, column in rows._asdict().items() if column is not None}


@pytest.mark.parametrize("chosen", [None, [3, 1]])
def test_the_loss_of_the_critics_is_that_of_the_paper(chosen: list[int] | None):
    agent, batch = in_double(sac(num_critics=4))
    noise, subset = normal(1), None if chosen is None else torch.tensor(chosen)
    result = agent.critic_loss(batch, CriticNoise(noise, subset, None, None), ENT_COEF)
    b = numbers(batch)
    action, log_prob = sampled(agent.actor, b["next_obs"], noise.numpy())
    members = range(4) if chosen is None else chosen
    q_next = [critic(agent.critics.target, i, b["next_obs"], action) for i in members]
    y = b["reward"][:, 0] + b["discount"][:, 0] * (np.min(q_next, axis=0) - 0.3 * log_prob)
    errors = [critic(agent.critics.online, i, b["obs"], b["action"]) - y for i in range(4)]
    losses = [np.mean(b["weight"][:, 0] * error**2) / 2 for error in errors]
    assert result.loss.item() == pytest.approx(sum(losses), rel=1e-6)
    np.testing.assert_allclose((result.q - result.target).squeeze(2), errors, rtol=1e-6)


@pytest.mark.parametrize("what", ["min", "mean"])
def test_the_loss_of_the_actor_is_that_of_the_paper(what: str):
    agent, batch = in_double(sac(num_critics=3, actor_critics=what))
    noise = normal(2)
    result = agent.actor_loss(batch, ActorNoise(noise, None), ENT_COEF)
    b = numbers(batch)
    action, log_prob = sampled(agent.actor, b["obs"], noise.numpy())
    q = [critic(agent.critics.online, i, b["obs"], action) for i in range(3)]
    value = np.min(q, axis=0) if what == "min" else np.mean(q, axis=0)
    expected = np.mean(b["weight"][:, 0] * (0.3 * log_prob - value))
    assert result.loss.item() == pytest.approx(expected, rel=1e-6)
    np.testing.assert_allclose(result.log_prob.squeeze(1), log_prob, rtol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_both_losses_have_the_gradients_of_finite_differences(kind: str):
    agent, batch = in_double(agent_of(kind, activation="tanh"))
    critic_noise, actor_noise = normal(3), normal(4)
    if kind != "tqc":
        critic_noise = to_float64(agent.draw_critic_noise(batch))
        actor_noise = to_float64(agent.draw_actor_noise(batch))
    critics, actor = list(agent.critics.online.parameters()), list(agent.actor.parameters())
    assert_slopes(lambda: agent.critic_loss(batch, critic_noise, ENT_COEF).loss, critics)
    # `critics.frozen` no longer shares memory with the critics, but its weights are equal.
    assert_slopes(lambda: agent.actor_loss(batch, actor_noise, ENT_COEF).loss, actor)


def to_float64(draws: Any) -> Any:
    if isinstance(draws, Tensor):
        return draws.double() if draws.is_floating_point() else draws
    if isinstance(draws, list):
        return [tensor.double() for tensor in draws]
    return draws if draws is None else type(draws)(*map(to_float64, draws))


def test_the_weight_of_entropy_grows_where_entropy_falls_short():
    """Adam's first step is -learning_rate * sign(gradient)."""
    config = SacConfig(ent_coef_init=0.5, ent_coef_learning_rate=0.1, target_entropy=-1.5)
    for log_prob, sign in ((2.0, 1), (1.0, -1)):
        weight = EntropyCoefficient(config, -2.0, torch.device("cpu"))
        assert weight.target == -1.5
        assert weight().item() == pytest.approx(0.5)
        weight.step(torch.full((4, 1), log_prob), torch.ones(4, 1), weight.target)
        assert weight().item() == pytest.approx(0.5 * math.exp(0.1 * sign), rel=1e-5)
    # A row that outweighs all others determines the direction.
    weight = EntropyCoefficient(config, -2.0, torch.device("cpu"))
    weight.step(torch.tensor([[1.0], [1.0], [2.0]]), torch.tensor([[0.1], [0.1], [0.9]]), -1.5)
    assert weight().item() > 0.5


def test_the_target_entropy_is_minus_the_number_of_dimensions_unless_it_is_set():
    assert sac().ent_coef.target == -2
    assert sac(target_entropy=0.0).ent_coef.target == 0


@pytest.mark.parametrize("ent_coef", [0.0, 0.2])
def test_a_fixed_entropy_coefficient_stays(ent_coef: float):
    weight = EntropyCoefficient(SacConfig(ent_coef=ent_coef), -2.0, torch.device("cpu"))
    weight.step(torch.ones(4, 1), torch.ones(4, 1), weight.target)
    assert weight().item() == pytest.approx(ent_coef)
