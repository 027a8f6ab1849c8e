"""Updates of five algorithms as in a plain PyTorch script: the baselines of `benchmarks.updates`.

Each algorithm is a class with `update(batch)`, where `batch` is a dict of precomputed tensors.
Included: plain modules, autograd and `torch.optim.Adam(fused=True)`. Not included: importance
weights, priorities, metrics, checks, clipping.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import TypeAlias

import torch
import torch.nn.functional as F  # noqa: N812 - the usual alias
from torch import Tensor, nn

Rows: TypeAlias = Mapping[str, Tensor]  # obs, action, reward, discount, next_obs

LEARNING_RATE = 3e-4
TAU = 0.005
OBS, ACTIONS, ACTION_SIZE = 4, 2, 1


def mlp(*sizes: int) -> nn.Sequential:
    """Builds dense layers with ReLU between them."""
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(sizes):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def nature(actions: int) -> nn.Sequential:
    """Builds the network of Mnih et al. 2015, for inputs [B, 4, 84, 84] between 0 and 1."""
    return nn.Sequential(
        *(nn.Conv2d(4, 32, 8, 4), nn.ReLU(), nn.Conv2d(32, 64, 4, 2), nn.ReLU()),
        *(nn.Conv2d(64, 64, 3, 1), nn.ReLU(), nn.Flatten(), nn.Linear(3136, 512), nn.ReLU()),
        nn.Linear(512, actions),
    )


def adam(*modules: nn.Module) -> torch.optim.Adam:
    parameters = [parameter for module in modules for parameter in module.parameters()]
    return torch.optim.Adam(parameters, lr=LEARNING_RATE, fused=True)


def step(optimizer: torch.optim.Optimizer, loss: Tensor) -> None:
    optimizer.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]
    optimizer.step()


@torch.no_grad()
def follow(target: nn.Module, online: nn.Module, tau: float = TAU) -> None:
    torch._foreach_lerp_(list(target.parameters()), list(online.parameters()), tau)


class Dqn:
    """DQN with the Huber loss and a hard target update every 500 updates."""

    def __init__(self, q: nn.Module | None = None) -> None:
        self.q = q or mlp(OBS, 256, 256, ACTIONS)
        self.target = copy.deepcopy(self.q)
        self.optimizer = adam(self.q)
        self.updates = 0

    def loss(self, batch: Rows) -> Tensor:
        with torch.no_grad():
            q_next = self.target(batch["next_obs"]).max(1, keepdim=True).values
            y = batch["reward"] + batch["discount"] * q_next
        q = self.q(batch["obs"]).gather(1, batch["action"])
        return F.huber_loss(q, y)

    def update(self, batch: Rows) -> None:
        step(self.optimizer, self.loss(batch))
        self.updates += 1
        if self.updates % 500 == 0:
            self.target.load_state_dict(self.q.state_dict())


class QuantileNetwork(nn.Module):
    """The IQN network with 256 units and 64 cosines. [B, OBS], [B or 1, N] -> [B, N, ACTIONS]"""

    def __init__(self) -> None:
        super().__init__()
        self.psi, self.phi = nn.Linear(OBS, 256), nn.Linear(64, 256)
        self.f = mlp(256, 256, ACTIONS)
        self.register_buffer("waves", math.pi * torch.arange(64))

    def forward(self, obs: Tensor, fractions: Tensor) -> Tensor:
        cosines = torch.cos(fractions[:, :, None] * self.waves)
        embedded = F.relu(self.phi(cosines))
        quantiles: Tensor = self.f(F.relu(self.psi(obs))[:, None] * embedded)
        return quantiles


class Iqn:
    """IQN with 8 fractions for the quantiles, 8 for the targets and 32 fixed ones for actions."""

    def __init__(self) -> None:
        self.z = QuantileNetwork()
        self.target = copy.deepcopy(self.z)
        self.optimizer = adam(self.z)
        self.acting = (torch.arange(32)[None] + 0.5) / 32
        self.updates = 0

    def update(self, batch: Rows) -> None:
        rows = len(batch["obs"])
        fractions = torch.rand(rows, 8)
        with torch.no_grad():
            best = self.target(batch["next_obs"], self.acting).mean(1).argmax(1)  # [B]
            z_next = self.target(batch["next_obs"], torch.rand(rows, 8))
            y = batch["reward"] + batch["discount"] * select_action(z_next, best)  # [B, 8]
        z = select_action(self.z(batch["obs"], fractions), batch["action"][:, 0])  # [B, 8]
        error = y[:, None, :] - z[:, :, None]  # [B, 8, 8]
        side = (fractions[:, :, None] - (error.detach() < 0).float()).abs()
        huber = F.huber_loss(error, torch.zeros_like(error), reduction="none")
        step(self.optimizer, (side * huber).mean(2).sum(1).mean())
        self.updates += 1
        if self.updates % 500 == 0:
            self.target.load_state_dict(self.z.state_dict())


def select_action(quantiles: Tensor, action: Tensor) -> Tensor:
    """Selects the quantiles of the actions. [B, N, ACTIONS], [B] -> [B, N]"""
    index = action[:, None, None].expand(-1, quantiles.shape[1], 1)
    return quantiles.gather(2, index).squeeze(2)


class Critics(nn.Module):
    """Two critics, evaluated one after the other as in most scripts."""

    def __init__(self, *hidden: int) -> None:
        super().__init__()
        self.first = mlp(OBS + ACTION_SIZE, *(hidden or (256, 256)), 1)
        self.second = mlp(OBS + ACTION_SIZE, *(hidden or (256, 256)), 1)

    def forward(self, obs: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        rows = torch.cat((obs, action), 1)
        return self.first(rows), self.second(rows)


def squared(predictions: Iterable[Tensor], y: Tensor) -> Tensor:
    return sum((F.mse_loss(q, y) for q in predictions), torch.zeros((), device=y.device))


class Sac:
    """SAC with two critics and a learned entropy coefficient."""

    def __init__(self, *hidden: int) -> None:
        self.actor = mlp(OBS, *(hidden or (256, 256)), 2 * ACTION_SIZE)
        self.critic = Critics(*hidden)
        self.target = copy.deepcopy(self.critic)
        self.log_alpha = nn.Parameter(torch.zeros(1))
        self.actor_optimizer, self.critic_optimizer = adam(self.actor), adam(self.critic)
        self.alpha_optimizer = torch.optim.Adam([self.log_alpha], lr=LEARNING_RATE, fused=True)

    def act(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        mean, log_std = self.actor(obs).chunk(2, 1)
        normal = torch.distributions.Normal(mean, log_std.clamp(-20, 2).exp(), validate_args=False)
        pre_tanh = normal.rsample()
        action = torch.tanh(pre_tanh)
        log_prob = normal.log_prob(pre_tanh) - torch.log(1 - action**2 + 1e-6)
        return action, log_prob.sum(1, keepdim=True)

    def critic_loss(self, batch: Rows, alpha: Tensor) -> Tensor:
        with torch.no_grad():
            action, log_prob = self.act(batch["next_obs"])
            value = torch.min(*self.target(batch["next_obs"], action)) - alpha * log_prob
            y = batch["reward"] + batch["discount"] * value
        return squared(self.critic(batch["obs"], batch["action"]), y)

    def actor_loss(self, batch: Rows, alpha: Tensor) -> tuple[Tensor, Tensor]:
        action, log_prob = self.act(batch["obs"])
        return (alpha * log_prob - torch.min(*self.critic(batch["obs"], action))).mean(), log_prob

    def update(self, batch: Rows) -> None:
        alpha = self.log_alpha.exp().detach()
        step(self.critic_optimizer, self.critic_loss(batch, alpha))
        loss, log_prob = self.actor_loss(batch, alpha)
        step(self.actor_optimizer, loss)
        step(self.alpha_optimizer, -(self.log_alpha * (log_prob.detach() - ACTION_SIZE)).mean())
        follow(self.target, self.critic)


class Td3:
    """TD3 with two critics; the actor is updated on every second update."""

    def __init__(self) -> None:
        self.actor = nn.Sequential(mlp(OBS, 256, 256, ACTION_SIZE), nn.Tanh())
        self.critic = Critics()
        self.actor_target, self.target = copy.deepcopy(self.actor), copy.deepcopy(self.critic)
        self.actor_optimizer, self.critic_optimizer = adam(self.actor), adam(self.critic)
        self.updates = 0

    def update(self, batch: Rows) -> None:
        self.updates += 1
        with torch.no_grad():
            noise = (0.2 * torch.randn_like(batch["action"])).clamp(-0.5, 0.5)
            action = (self.actor_target(batch["next_obs"]) + noise).clamp(-1, 1)
            value = torch.min(*self.target(batch["next_obs"], action))
            y = batch["reward"] + batch["discount"] * value
        step(self.critic_optimizer, squared(self.critic(batch["obs"], batch["action"]), y))
        if self.updates % 2 == 0:
            rows = torch.cat((batch["obs"], self.actor(batch["obs"])), 1)
            step(self.actor_optimizer, -self.critic.first(rows).mean())
            follow(self.target, self.critic)
            follow(self.actor_target, self.actor)


class Iql:
    """IQL with expectile 0.7, a tanh-squashed Gaussian policy and weights up to 100."""

    def __init__(self) -> None:
        self.actor, self.value = mlp(OBS, 256, 256, 2 * ACTION_SIZE), mlp(OBS, 256, 256, 1)
        self.critic = Critics()
        self.target = copy.deepcopy(self.critic)
        self.actor_optimizer, self.critic_optimizer = adam(self.actor), adam(self.critic)
        self.value_optimizer = adam(self.value)

    def log_prob(self, obs: Tensor, action: Tensor) -> Tensor:
        mean, log_std = self.actor(obs).chunk(2, 1)
        normal = torch.distributions.Normal(mean, log_std.clamp(-20, 2).exp(), validate_args=False)
        pre_tanh = torch.atanh(action.clamp(-1 + 1e-6, 1 - 1e-6))
        slope = torch.log(1 - action**2 + 1e-6)
        return (normal.log_prob(pre_tanh) - slope).sum(1, keepdim=True)

    def update(self, batch: Rows) -> None:
        with torch.no_grad():
            q = torch.min(*self.target(batch["obs"], batch["action"]))
            next_value = self.value(batch["next_obs"])
        error = q - self.value(batch["obs"])
        expectile = torch.where(error > 0, 0.7, 0.3)
        step(self.value_optimizer, (expectile * error**2).mean())
        weight = (3 * error.detach()).exp().clamp(max=100)
        y = batch["reward"] + batch["discount"] * next_value
        step(self.critic_optimizer, squared(self.critic(batch["obs"], batch["action"]), y))
        follow(self.target, self.critic)
        loss = -(weight * self.log_prob(batch["obs"], batch["action"])).mean()
        step(self.actor_optimizer, loss)
