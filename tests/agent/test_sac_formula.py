"""Targets and losses of soft actor-critic: by hand, by another implementation, by differences."""

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
from border_cli.nn.tensor_batch import TensorBatch
from tests.support.finite_differences import assert_slopes
from tests.support.offline_agents import critic, double, in_double, sampled
from tests.support.soft_agents import KINDS, agent_of, sac

ENT_COEF = torch.tensor(0.3, dtype=torch.float64)


def rows(reward: list[float], discount: list[float]) -> TensorBatch:
    columns = [double(each)[:, None] for each in (reward, discount)]
    nothing = torch.zeros(len(reward), 1, dtype=torch.float64)
    return TensorBatch(nothing, nothing, *columns, nothing, nothing)


def test_a_target_is_the_smallest_value_and_the_entropy_discounted():
    q_next = double([[[2.0], [5.0]], [[3.0], [4.0]]])
    found = soft_target(rows([1, -1], [0.9, 0]), q_next, double([[-0.5], [2.0]]), ENT_COEF)
    # 1 + 0.9 (2 + 0.3 * 0.5); the second episode has ended
    np.testing.assert_allclose(found, [[2.935], [-1]], rtol=1e-12)


def test_the_actor_weighs_entropy_against_value():
    value, log_prob, weight = double([[2.0], [-1.0]]), double([[1.0], [3.0]]), double([[1], [0.5]])
    found = policy_loss(value, log_prob, ENT_COEF, weight)
    # (1 (0.3 - 2) + 0.5 (0.9 + 1)) / 2
    assert found.loss.item() == pytest.approx(-0.375, rel=1e-12)
    assert torch.equal(found.log_prob, log_prob)


def normal(seed: int) -> Tensor:
    return double(np.random.default_rng(seed).normal(size=(8, 2)))


def numbers(given: TensorBatch) -> dict[str, Any]:
    return {name: each.numpy() for name, each in given._asdict().items() if each is not None}


@pytest.mark.parametrize("chosen", [None, [3, 1]])
def test_the_loss_of_the_critics_is_that_of_the_paper(chosen: list[int] | None):
    agent, given = in_double(sac(num_critics=4))
    noise, subset = normal(1), None if chosen is None else torch.tensor(chosen)
    found = agent.critic_loss(given, CriticNoise(noise, subset, None, None), ENT_COEF)
    b = numbers(given)
    action, log_prob = sampled(agent.actor, b["next_obs"], noise.numpy())
    asked = range(4) if chosen is None else chosen
    q_next = [critic(agent.critics.target, i, b["next_obs"], action) for i in asked]
    y = b["reward"][:, 0] + b["discount"][:, 0] * (np.min(q_next, axis=0) - 0.3 * log_prob)
    errors = [critic(agent.critics.online, i, b["obs"], b["action"]) - y for i in range(4)]
    losses = [np.mean(b["weight"][:, 0] * error**2) / 2 for error in errors]
    assert found.loss.item() == pytest.approx(sum(losses), rel=1e-6)
    np.testing.assert_allclose((found.q - found.target).squeeze(2), errors, rtol=1e-6)


@pytest.mark.parametrize("what", ["min", "mean"])
def test_the_loss_of_the_actor_is_that_of_the_paper(what: str):
    agent, given = in_double(sac(num_critics=3, actor_critics=what))
    noise = normal(2)
    found = agent.actor_loss(given, ActorNoise(noise, None), ENT_COEF)
    b = numbers(given)
    action, log_prob = sampled(agent.actor, b["obs"], noise.numpy())
    q = [critic(agent.critics.online, i, b["obs"], action) for i in range(3)]
    value = np.min(q, axis=0) if what == "min" else np.mean(q, axis=0)
    expected = np.mean(b["weight"][:, 0] * (0.3 * log_prob - value))
    assert found.loss.item() == pytest.approx(expected, rel=1e-6)
    np.testing.assert_allclose(found.log_prob.squeeze(1), log_prob, rtol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_both_losses_have_the_gradients_of_finite_differences(kind: str):
    agent, given = in_double(agent_of(kind, activation="tanh"))
    of_critics, of_actor = normal(3), normal(4)
    if kind != "tqc":
        of_critics = in_float64(agent.draw_critic_noise(given))
        of_actor = in_float64(agent.draw_actor_noise(given))
    critics, actor = list(agent.critics.online.parameters()), list(agent.actor.parameters())
    assert_slopes(lambda: agent.critic_loss(given, of_critics, ENT_COEF).loss, critics)
    # `critics.frozen` shares no memory any more, but its values are those of the critics.
    assert_slopes(lambda: agent.actor_loss(given, of_actor, ENT_COEF).loss, actor)


def in_float64(draws: Any) -> Any:
    if isinstance(draws, Tensor):
        return draws.double() if draws.is_floating_point() else draws
    if isinstance(draws, list):
        return [each.double() for each in draws]
    return draws if draws is None else type(draws)(*map(in_float64, draws))


def test_the_weight_of_entropy_grows_where_entropy_falls_short():
    """Adam's first step is the learning rate against the sign of the gradient."""
    config = SacConfig(ent_coef_init=0.5, ent_coef_learning_rate=0.1, target_entropy=-1.5)
    for log_prob, sign in ((2.0, 1), (1.0, -1)):
        weight = EntropyCoefficient(config, -2.0, torch.device("cpu"))
        assert weight.target == -1.5
        assert weight().item() == pytest.approx(0.5)
        weight.step(torch.full((4, 1), log_prob), torch.ones(4, 1), weight.target)
        assert weight().item() == pytest.approx(0.5 * math.exp(0.1 * sign), rel=1e-5)
    # A row that weighs more than all others together says where it goes.
    weight = EntropyCoefficient(config, -2.0, torch.device("cpu"))
    weight.step(torch.tensor([[1.0], [1.0], [2.0]]), torch.tensor([[0.1], [0.1], [0.9]]), -1.5)
    assert weight().item() > 0.5


def test_entropy_is_asked_for_by_the_number_of_dimensions_unless_it_is_said():
    assert sac().ent_coef.target == -2
    assert sac(target_entropy=0.0).ent_coef.target == 0


@pytest.mark.parametrize("ent_coef", [0.0, 0.2])
def test_a_weight_of_entropy_that_is_set_stays(ent_coef: float):
    weight = EntropyCoefficient(SacConfig(ent_coef=ent_coef), -2.0, torch.device("cpu"))
    weight.step(torch.ones(4, 1), torch.ones(4, 1), weight.target)
    assert weight().item() == pytest.approx(ent_coef)
