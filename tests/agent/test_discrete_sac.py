"""Discrete soft actor-critic, beside another implementation of all of it and by hand."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from boxes import numbers, reals
from continuous import data_set
from torch import Tensor, nn
from torch.distributions import Categorical

from border_cli.agent.config import DiscreteSacConfig
from border_cli.agent.discrete_sac import Chances, DiscreteSac, smallest, soft_value
from border_cli.core.spaces import DiscreteSpace, EnvSpec, LeafSpace, MultiDiscreteSpace
from border_cli.core.types import Batch
from border_cli.errors import ConfigError

SMALL: dict[str, Any] = {"hidden": [8, 6], "learning_rate": 0.01, "batch_size": 16}
SPACES: dict[str, tuple[LeafSpace, list[int]]] = {
    "discrete": (DiscreteSpace(3), [3]),
    "factored": (MultiDiscreteSpace((2, 3, 2)), [2, 3, 2]),
}


def discrete_sac(space: LeafSpace, observation: int = 3, **settings: Any) -> DiscreteSac:
    env = EnvSpec(id="X-v0", observation=reals(observation), action=space, max_episode_steps=9)
    config = DiscreteSacConfig(**{**SMALL, **settings})
    return DiscreteSac(config, spec=env, device="cpu", seed=0)


def rows(nvec: list[int], seed: int, count: int = 16) -> Batch:
    rng = np.random.default_rng(seed)
    action = rng.integers(nvec, size=(count, len(nvec)))
    obs, next_obs = rng.standard_normal((2, count, 3))
    discount = np.where(rng.random(count) < 0.3, 0, 0.9)
    reward = rng.normal(0, 2, count)
    made = data_set(obs, action if len(nvec) > 1 else action[:, 0], reward, discount, next_obs)
    return replace(made, weight=rng.random(count).astype(np.float32))


class Plain:
    """The algorithm as a script would have it, over all joint actions, which it enumerates."""

    def __init__(self, agent: DiscreteSac, nvec: list[int], target: float) -> None:
        self.nvec, self.target_entropy = nvec, target
        self.joint = torch.tensor(list(product(*(range(n) for n in nvec))))  # [n, K]
        self.actor = stack([(each.weight, each.bias) for each in agent.actor.mlp.layers])
        pairs = list(zip(agent.critic.mlp.weights, agent.critic.mlp.biases, strict=True))
        self.critics, self.targets = (
            [stack([(w[i].T, b[i, 0]) for w, b in pairs]) for i in range(2)] for _ in range(2)
        )
        self.log_alpha = torch.zeros((), requires_grad=True)
        critics = [each for one in self.critics for each in one.parameters()]
        self.optimizers = [
            torch.optim.Adam(each, lr=0.01)
            for each in (critics, self.actor.parameters(), [self.log_alpha])
        ]

    def parts(self, outputs: Tensor) -> list[Tensor]:
        return list(outputs.split(self.nvec, dim=1))

    def policy(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        """The probability of every joint action, and its logarithm. [B, n]"""
        of_each = [Categorical(logits=part) for part in self.parts(self.actor(obs))]
        log = torch.stack(
            [
                sum(one.log_prob(choice) for one, choice in zip(of_each, action, strict=True))
                for action in self.joint
            ],
            dim=1,
        )
        return log.exp(), log

    def values(self, critic: nn.Module, obs: Tensor) -> Tensor:
        """Of every joint action. [B, n]"""
        parts = self.parts(critic(obs))
        picked = [part[:, self.joint[:, k]] for k, part in enumerate(parts)]
        return torch.stack(picked).sum(0)

    def smaller(self, critics: list[nn.Sequential], obs: Tensor, chance: Tensor) -> Tensor:
        first, second = (self.values(each, obs) for each in critics)
        if len(self.nvec) == 1:
            return torch.minimum(first, second)
        of_first = (chance * first).sum(1) <= (chance * second).sum(1)
        return torch.where(of_first[:, None], first, second)

    def update(self, batch: Batch) -> None:
        obs, next_obs = torch.from_numpy(batch.obs), torch.from_numpy(batch.next_obs)
        reward, discount, weight = map(
            torch.from_numpy, (batch.reward, batch.discount, batch.weight)
        )
        chosen = torch.from_numpy(batch.action.reshape(len(reward), -1))
        index = (chosen[:, None] == self.joint).all(2).int().argmax(1)
        alpha = self.log_alpha.exp().detach()
        with torch.no_grad():
            chance, log = self.policy(next_obs)
            q = self.smaller(self.targets, next_obs, chance)
            y = reward + discount * (chance * (q - alpha * log)).sum(1)
        taken = [self.values(each, obs)[torch.arange(len(y)), index] for each in self.critics]
        self.step(0, sum((weight * (q - y) ** 2).mean() / 2 for q in taken))
        chance, log = self.policy(obs)
        with torch.no_grad():
            q = self.smaller(self.critics, obs, chance)
        self.step(1, (weight * (chance * (alpha * log - q)).sum(1)).mean())
        entropy = -(chance * log).sum(1).detach()
        self.step(2, self.log_alpha * (weight * (entropy - self.target_entropy)).mean())
        with torch.no_grad():
            for target, online in zip(self.targets, self.critics, strict=True):
                for mine, its in zip(target.parameters(), online.parameters(), strict=True):
                    mine.lerp_(its, 0.3)

    def step(self, which: int, loss: Any) -> None:
        leaves = self.optimizers[which].param_groups[0]["params"]
        for each, gradient in zip(leaves, torch.autograd.grad(loss, leaves), strict=True):
            each.grad = gradient
        self.optimizers[which].step()


def stack(layers: list[tuple[Tensor, Tensor]]) -> nn.Sequential:
    made: list[nn.Module] = []
    for weight, bias in layers:
        layer = nn.Linear(weight.shape[1], weight.shape[0])
        layer.weight.data, layer.bias.data = weight.detach().clone(), bias.detach().clone()
        made += [layer, nn.ReLU()]
    return nn.Sequential(*made[:-1])


@pytest.mark.parametrize("kind", SPACES)
def test_updates_are_those_of_another_implementation(kind: str):
    space, nvec = SPACES[kind]
    agent = discrete_sac(space, tau=0.3)
    plain = Plain(agent, nvec, target=0.3 * sum(map(math.log, nvec)))
    for seed in range(20):
        batch = rows(nvec, seed)
        agent.update(batch)
        plain.update(batch)
    obs = torch.from_numpy(batch.obs)
    close = {"rtol": 1e-3, "atol": 1e-4}
    with torch.no_grad():
        torch.testing.assert_close(agent.actor(obs), plain.actor(obs), **close)
        for found, expected in (
            (agent.critic(obs, None), plain.critics),
            (agent.critic_target(obs, None), plain.targets),
        ):
            by_each = torch.stack([each(obs) for each in expected])
            torch.testing.assert_close(found, by_each, **close)
        torch.testing.assert_close(agent.ent_coef.log, plain.log_alpha, **close)


def test_soft_values_by_hand_also_where_an_action_is_impossible():
    """0.25 (4 + 0.5 log 4) + 0.75 (8 - 0.5 log 0.75) = 7 + 0.5 * 0.56234"""
    logits = torch.tensor([[0.0, math.log(3), -math.inf]], requires_grad=True)
    agent = discrete_sac(DiscreteSpace(3))
    agent.actor.forward = lambda _: logits  # type: ignore[method-assign]
    chances = agent.chances(torch.zeros(1, 3), None)
    value = soft_value(torch.tensor([[4.0, 8.0, 99.0]]), chances, torch.tensor(0.5))
    assert value.item() == pytest.approx(7 + 0.5 * 0.562335, abs=1e-5)
    assert chances.entropy.item() == pytest.approx(0.562335, abs=1e-5)
    (gradient,) = torch.autograd.grad(value.sum(), logits)
    assert torch.isfinite(gradient).all()
    assert gradient[0, 2] == 0


def test_of_several_components_the_critic_that_expects_least_counts_with_all_its_values():
    """How the two share their sums out, 10 and 0 or 0 and 9, says nothing."""
    half = torch.full((1, 4), 0.5)
    q = torch.tensor([[[10.0, 10.0, 0.0, 0.0]], [[0.0, 0.0, 9.0, 9.0]]])
    found = smallest(q, Chances(half, half.log()), is_single=False)
    assert found.tolist() == [[0, 0, 9, 9]]
    assert smallest(q, Chances(half, half.log()), is_single=True).tolist() == [[0, 0, 0, 0]]


def test_the_target_entropy_is_a_share_of_the_largest_or_as_it_is_said():
    switches = MultiDiscreteSpace((2, 8))
    assert discrete_sac(DiscreteSpace(4)).ent_coef.target == pytest.approx(0.3 * math.log(4))
    agent = discrete_sac(switches, target_entropy_scale=0.5)
    assert agent.ent_coef.target == pytest.approx(0.5 * math.log(16))
    assert discrete_sac(switches, target_entropy=0.7).ent_coef.target == 0.7


def test_a_bandit_of_two_components_gets_its_exact_soft_values():
    """r = 1 to choose 1 in the first, 2 to choose 2 in the second: pi ~ exp(r / alpha), and
    V = alpha logsumexp(r / alpha), component by component. The step before has 0.9 V."""
    alpha, pays = 0.5, ([0.0, 1.0], [0.0, 0.0, 2.0])
    joint = np.array(list(product(range(2), range(3))))
    reward = np.array([pays[0][a] + pays[1][b] for a, b in joint])
    at, before = np.ones((6, 1)), np.zeros((6, 1))
    batch = data_set(
        np.concatenate((at, before)), np.concatenate((joint, joint)),
        np.concatenate((reward, np.zeros(6))), np.repeat([0, 0.9], 6), np.ones((12, 1)),
    )  # fmt: skip
    agent = discrete_sac(
        MultiDiscreteSpace((2, 3)), 1, ent_coef=alpha, hidden=[32], learning_rate=0.02, tau=0.2
    )
    for _ in range(400):
        agent.update(batch)
    with torch.no_grad():
        chances = agent.chances(torch.ones(1, 1), None).probability[0].split([2, 3])
        q = agent.critic(torch.zeros(1, 1), None)[:, 0]  # [E, S]
    for found, pay in zip(chances, pays, strict=True):
        torch.testing.assert_close(found, (torch.tensor(pay) / alpha).softmax(0), rtol=0, atol=0.01)
    value = sum(alpha * np.log(np.exp(np.array(pay) / alpha).sum()) for pay in pays)
    for a, b in joint:
        np.testing.assert_allclose(q[:, a] + q[:, 2 + b], 0.9 * value, atol=0.03)


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"target_entropy": 0.5, "target_entropy_scale": 0.5}, "needs agent.target_entropy=null"),
        ({"ent_coef": 0.1, "target_entropy_scale": 0.5}, "target_entropy_scale needs a learned"),
        ({"target_entropy_scale": 1.5}, "target_entropy_scale must be .* at most 1"),
    ],
)
def test_what_cannot_be_meant_is_refused(settings: dict[str, Any], match: str):
    with pytest.raises(ConfigError, match=match):
        DiscreteSacConfig(**settings)


def test_actions_of_a_box_are_refused():
    with pytest.raises(ConfigError, match=r"needs a Discrete, .*Agents for Box actions: .*, sac"):
        discrete_sac(numbers(2))
