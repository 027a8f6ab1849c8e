"""Losses of discrete soft actor-critic, against sums over all joint actions and by hand."""

from __future__ import annotations

import math
from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.distributions import Categorical

from border_cli.agent.config import DiscreteSacConfig
from border_cli.agent.discrete_sac import (
    ChoiceProbabilities,
    DiscreteSac,
    pessimistic_values,
    soft_value,
)
from border_cli.core.spaces import DiscreteSpace, EnvSpec, LeafSpace, MultiDiscreteSpace
from border_cli.errors import ConfigError
from border_cli.nn.batch import TensorBatch
from tests.support.spaces import numbers, reals

SPACES: dict[str, tuple[LeafSpace, list[int]]] = {
    "discrete": (DiscreteSpace(3), [3]),
    "factored": (MultiDiscreteSpace((2, 3, 2)), [2, 3, 2]),
}


def discrete_sac(space: LeafSpace, **settings: Any) -> DiscreteSac:
    env = EnvSpec(id="X-v0", observation=reals(3), action=space, max_episode_steps=9)
    config = DiscreteSacConfig(hidden=[8, 6], **settings)
    return DiscreteSac(config, spec=env, device="cpu", seed=0)


class JointActions:
    """A reference implementation of the paper's formulas that enumerates all joint actions."""

    def __init__(self, nvec: list[int]) -> None:
        self.nvec = nvec
        self.actions = torch.tensor(list(product(*map(range, nvec))))  # [n, K]

    def sum_outputs(self, outputs: Tensor) -> Tensor:
        """Sums the outputs that belong to each joint action. [B, S] -> [B, n]"""
        parts = zip(outputs.split(self.nvec, dim=-1), self.actions.T, strict=True)
        return torch.stack([part[:, choice] for part, choice in parts]).sum(0)

    def policy(self, logits: Tensor) -> Categorical:
        return Categorical(logits=self.sum_outputs(logits))

    def smaller(self, outputs: Tensor, policy: Categorical) -> Tensor:
        first, second = map(self.sum_outputs, outputs)
        if len(self.nvec) == 1:
            return torch.minimum(first, second)
        less = ((second - first) * policy.probs).sum(1, keepdim=True) > 0
        return torch.where(less, first, second)


@pytest.mark.parametrize("kind", SPACES)
def test_losses_are_expectations_over_all_joint_actions(kind: str):
    space, nvec = SPACES[kind]
    agent, joint = discrete_sac(space), JointActions(nvec)
    generator = torch.Generator().manual_seed(3)
    obs, next_obs = torch.randn(2, 16, 3, generator=generator)
    reward, discount, weight = torch.rand(3, 16, 1, generator=generator)
    index = torch.randint(len(joint.actions), (16,), generator=generator)
    with torch.no_grad():  # make the critics differ from their targets
        for parameter in agent.critics.online.parameters():
            parameter += 0.3 * torch.randn(parameter.shape, generator=generator)
    batch = TensorBatch(obs, joint.actions[index], reward, discount, next_obs, weight)
    alpha = torch.tensor(0.7)
    policy = joint.policy(agent.actor(next_obs))
    q = joint.smaller(agent.critics.target(next_obs, next_obs[:, :0]), policy)
    value = (policy.probs * q).sum(1, keepdim=True) + alpha * policy.entropy()[:, None]
    y = (reward + discount * value).detach()
    values_taken = [
        joint.sum_outputs(outputs)[range(16), index]
        for outputs in agent.critics.online(obs, obs[:, :0])
    ]
    expected = sum(((q_sa - y[:, 0]) ** 2 * weight[:, 0]).mean() / 2 for q_sa in values_taken)
    critic_loss = agent.critic_loss(batch, None, alpha)
    torch.testing.assert_close(critic_loss.target, y)
    torch.testing.assert_close(critic_loss.loss, expected)

    policy = joint.policy(agent.actor(obs))
    q = joint.smaller(agent.critics.online(obs, obs[:, :0]), policy).detach()
    values = (policy.probs * q).sum(1) + alpha * policy.entropy()
    actor_loss = agent.actor_loss(batch, None, alpha)
    torch.testing.assert_close(-actor_loss.log_prob[:, 0], policy.entropy())
    leaves = list(agent.actor.parameters())
    by_hand = torch.autograd.grad(-(weight[:, 0] * values).mean(), leaves)
    torch.testing.assert_close(torch.autograd.grad(actor_loss.loss, leaves), by_hand)


def test_soft_values_by_hand_also_where_an_action_is_impossible():
    """0.25 (4 + 0.5 log 4) + 0.75 (8 - 0.5 log 0.75) = 7 + 0.5 * 0.56234"""
    logits = torch.tensor([[0.0, math.log(3), -math.inf]], requires_grad=True)
    agent = discrete_sac(DiscreteSpace(3))
    agent.actor.forward = lambda _: logits  # type: ignore[method-assign]
    chances = agent.choice_probabilities(torch.zeros(1, 3), None)
    value = soft_value(torch.tensor([[4.0, 8.0, 99.0]]), chances, torch.tensor(0.5))
    assert value.item() == pytest.approx(7 + 0.5 * 0.562335, abs=1e-5)
    (gradient,) = torch.autograd.grad(value.sum(), logits)
    assert torch.isfinite(gradient).all()


def test_with_several_components_all_values_are_those_of_the_critic_with_the_smallest_sum():
    """The critics expect 10 + 0 and 0 + 9. How a sum is split over components does not matter."""
    half = torch.full((1, 4), 0.5)
    q = torch.tensor([[[10.0, 10.0, 0.0, 0.0]], [[0.0, 0.0, 9.0, 9.0]]])
    values = pessimistic_values(q, ChoiceProbabilities(half, half.log()), is_single=False)
    assert values.tolist() == [[0, 0, 9, 9]]


def test_the_target_entropy_is_a_share_of_the_largest_or_as_it_is_said():
    switches = MultiDiscreteSpace((2, 8))
    agent = discrete_sac(switches, target_entropy_scale=0.5)
    assert agent.ent_coef.target == pytest.approx(0.5 * math.log(16))
    assert discrete_sac(switches, target_entropy=0.7).ent_coef.target == 0.7
    for conflicting in ({"target_entropy": 0.5}, {"ent_coef": 0.1}):
        with pytest.raises(ConfigError, match=r"agent\.target_entropy_scale needs"):
            discrete_sac(switches, target_entropy_scale=0.5, **conflicting)


def test_actions_of_a_box_are_refused():
    with pytest.raises(ConfigError, match=r"needs a Discrete, .*Agents for Box actions: .*, sac"):
        discrete_sac(numbers(2))
