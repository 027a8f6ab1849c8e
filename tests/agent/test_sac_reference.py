"""Complete updates of soft actor-critic against an independent implementation."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from border_cli.nn.batch import TensorBatch
from tests.support.continuous_env import HALF, MIDDLE, batch
from tests.support.soft_agents import sac


class ReferenceSac:
    """Soft actor-critic as a plain script: nn.Linear, torch.distributions, torch.optim."""

    def __init__(self, agent: Any, rate: float, tau: float) -> None:
        self.actor = self._stack([(layer.weight, layer.bias) for layer in agent.actor.mlp.layers])
        pairs = list(
            zip(agent.critics.online.mlp.weights, agent.critics.online.mlp.biases, strict=True)
        )
        self.critics, self.targets = (
            [self._stack([(w[i].T, b[i, 0]) for w, b in pairs]) for i in range(2)]
            for _ in range(2)
        )  # fmt: skip
        self.log_alpha = torch.zeros((), requires_grad=True)
        self.tau = tau
        critics = [parameter for critic in self.critics for parameter in critic.parameters()]
        self.optimizers = [
            torch.optim.Adam(parameters, lr=rate)
            for parameters in (critics, self.actor.parameters(), [self.log_alpha])
        ]

    @staticmethod
    def _stack(layers: list[tuple[Tensor, Tensor]]) -> nn.Sequential:
        modules: list[nn.Module] = []
        for weight, bias in layers:
            layer = nn.Linear(weight.shape[1], weight.shape[0])
            layer.weight.data, layer.bias.data = weight.detach().clone(), bias.detach().clone()
            modules += [layer, nn.ReLU()]
        return nn.Sequential(*modules[:-1])

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
                for target_weight, online_weight in zip(
                    target.parameters(), online.parameters(), strict=True
                ):
                    target_weight.mul_(1 - self.tau).add_(self.tau * online_weight)
        return loss.detach()

    def step(self, which: int, loss: Tensor) -> None:
        self.optimizers[which].zero_grad()
        leaves = self.optimizers[which].param_groups[0]["params"]
        for parameter, gradient in zip(leaves, torch.autograd.grad(loss, leaves), strict=True):
            parameter.grad = gradient
        self.optimizers[which].step()


def test_ten_whole_updates_are_those_of_another_implementation():
    agent = sac(learning_rate=3e-3, tau=0.05)
    plain = ReferenceSac(agent, 3e-3, 0.05)
    noise = torch.Generator()
    for seed in range(10):
        rows = batch(seed)
        noise.set_state(agent.backend.noise.get_state())
        update = agent.update(rows)
        noises = [torch.randn(8, 2, generator=noise) for _ in range(2)]
        loss = plain.update(to_tensors(rows), noises)
        assert float(update.metrics["loss_critic"]) == pytest.approx(loss.item(), rel=1e-4)
    assert agent.ent_coef().item() == pytest.approx(plain.log_alpha.exp().item(), rel=1e-5)
    for actual, expected in zip(agent.actor.parameters(), plain.actor.parameters(), strict=True):
        torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-5)
    for critics, stacks in (
        (agent.critics.online, plain.critics),
        (agent.critics.target, plain.targets),
    ):
        for i, stack in enumerate(stacks):
            dense = [module for module in stack if isinstance(module, nn.Linear)]
            for layer, weight in zip(dense, critics.mlp.weights, strict=True):
                torch.testing.assert_close(weight[i].T, layer.weight, rtol=1e-4, atol=1e-5)


def to_tensors(rows: Any) -> TensorBatch:
    action = ((rows.action - MIDDLE) / HALF).astype(np.float32)
    columns = [torch.from_numpy(column)[:, None] for column in (rows.reward, rows.discount)]
    return TensorBatch(
        torch.from_numpy(rows.obs),
        torch.from_numpy(action),
        *columns,
        torch.from_numpy(rows.next_obs),
        torch.from_numpy(rows.weight)[:, None],
    )
