"""Whole updates of soft actor-critic, beside another implementation of all of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from border_cli.nn.tensor_batch import TensorBatch
from tests.support.continuous_env import HALF, MIDDLE, batch
from tests.support.soft_agents import sac


class Plain:
    """Soft actor-critic as a script would have it: nn.Linear, torch.distributions, torch.optim."""

    def __init__(self, agent: Any, rate: float, tau: float) -> None:
        self.actor = self._stack([(each.weight, each.bias) for each in agent.actor.mlp.layers])
        pairs = list(
            zip(agent.critics.online.mlp.weights, agent.critics.online.mlp.biases, strict=True)
        )
        self.critics, self.targets = (
            [self._stack([(w[i].T, b[i, 0]) for w, b in pairs]) for i in range(2)]
            for _ in range(2)
        )  # fmt: skip
        self.log_alpha = torch.zeros((), requires_grad=True)
        self.tau = tau
        critics = [each for one in self.critics for each in one.parameters()]
        self.optimizers = [
            torch.optim.Adam(each, lr=rate)
            for each in (critics, self.actor.parameters(), [self.log_alpha])
        ]

    @staticmethod
    def _stack(layers: list[tuple[Tensor, Tensor]]) -> nn.Sequential:
        made: list[nn.Module] = []
        for weight, bias in layers:
            layer = nn.Linear(weight.shape[1], weight.shape[0])
            layer.weight.data, layer.bias.data = weight.detach().clone(), bias.detach().clone()
            made += [layer, nn.ReLU()]
        return nn.Sequential(*made[:-1])

    def act(self, obs: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        mean, log_std = self.actor(obs).chunk(2, dim=1)
        normal = torch.distributions.Normal(mean, log_std.clamp(-20, 2).exp())
        before = mean + normal.stddev * noise
        log_prob = normal.log_prob(before) - torch.log(1 - torch.tanh(before) ** 2)
        return torch.tanh(before), log_prob.sum(dim=1, keepdim=True)

    @staticmethod
    def smallest(critics: list[nn.Sequential], obs: Tensor, action: Tensor) -> Tensor:
        rows = torch.cat((obs, action), dim=1)
        return torch.minimum(critics[0](rows), critics[1](rows))

    def update(self, b: TensorBatch, noises: list[Tensor]) -> Tensor:
        alpha = self.log_alpha.exp().detach()
        with torch.no_grad():
            action, log_prob = self.act(b.next_obs, noises[0])
            value = self.smallest(self.targets, b.next_obs, action) - alpha * log_prob
            y = b.reward + b.discount * value
        rows = torch.cat((b.obs, b.action), dim=1)
        loss = sum((b.weight * (q(rows) - y) ** 2).mean() / 2 for q in self.critics)
        self.step(0, loss)
        action, log_prob = self.act(b.obs, noises[1])
        value = self.smallest(self.critics, b.obs, action)
        self.step(1, (b.weight * (alpha * log_prob - value)).mean())
        entropy = (b.weight * (log_prob.detach() - 2)).mean()
        self.step(2, -self.log_alpha * entropy)
        with torch.no_grad():
            for target, online in zip(self.targets, self.critics, strict=True):
                for mine, its in zip(target.parameters(), online.parameters(), strict=True):
                    mine.mul_(1 - self.tau).add_(self.tau * its)
        return loss.detach()

    def step(self, which: int, loss: Tensor) -> None:
        self.optimizers[which].zero_grad()
        leaves = self.optimizers[which].param_groups[0]["params"]
        for each, gradient in zip(leaves, torch.autograd.grad(loss, leaves), strict=True):
            each.grad = gradient
        self.optimizers[which].step()


def test_ten_whole_updates_are_those_of_another_implementation():
    agent = sac(learning_rate=3e-3, tau=0.05)
    plain = Plain(agent, 3e-3, 0.05)
    noise = torch.Generator()
    for seed in range(10):
        given = batch(seed)
        noise.set_state(agent.noise_generator.get_state())
        update = agent.update(given)
        noises = [torch.randn(8, 2, generator=noise) for _ in range(2)]
        loss = plain.update(as_tensors(given), noises)
        assert float(update.metrics["loss_critic"]) == pytest.approx(loss.item(), rel=1e-4)
    assert agent.ent_coef().item() == pytest.approx(plain.log_alpha.exp().item(), rel=1e-5)
    for mine, its in zip(agent.actor.parameters(), plain.actor.parameters(), strict=True):
        torch.testing.assert_close(mine, its, rtol=1e-4, atol=1e-5)
    for critics, stacks in (
        (agent.critics.online, plain.critics),
        (agent.critics.target, plain.targets),
    ):
        for i, stack in enumerate(stacks):
            dense = [each for each in stack if isinstance(each, nn.Linear)]
            for layer, weight in zip(dense, critics.mlp.weights, strict=True):
                torch.testing.assert_close(weight[i].T, layer.weight, rtol=1e-4, atol=1e-5)


def as_tensors(given: Any) -> TensorBatch:
    action = ((given.action - MIDDLE) / HALF).astype(np.float32)
    columns = [torch.from_numpy(each)[:, None] for each in (given.reward, given.discount)]
    return TensorBatch(
        torch.from_numpy(given.obs),
        torch.from_numpy(action),
        *columns,
        torch.from_numpy(given.next_obs),
        torch.from_numpy(given.weight)[:, None],
    )
