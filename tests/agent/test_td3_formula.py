"""TD3's targets and losses, by hand, by finite differences and by another implementation."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from continuous import HALF, MIDDLE, batch, spec
from oracle import of_rlax
from slopes import assert_slopes
from torch import nn

from border_cli.agent.config import Td3Config
from border_cli.agent.td3 import Td3, smoothed, td_target
from border_cli.core.types import Batch
from border_cli.nn.tensor_batch import TensorBatch


def td3(seed: int = 0, **settings: Any) -> Td3:
    small = {"hidden": [8, 6], "learning_rate": 0.01, "batch_size": 8}
    return Td3(Td3Config(**{**small, **settings}), spec=spec(), device="cpu", seed=seed)


def tensors(seed: int, rows: int = 5) -> TensorBatch:
    """Features, actions of -1 to 1 and the rest, in float64."""
    draw = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=draw, dtype=torch.float64)

    return TensorBatch(
        obs=normal(rows, 3),
        action=torch.tanh(normal(rows, 2)),
        reward=normal(rows, 1),
        discount=torch.full((rows, 1), 0.9, dtype=torch.float64),
        next_obs=normal(rows, 3),
        weight=normal(rows, 1).square(),
    )


def in_double_precision(agent: Td3) -> Td3:
    for module in (agent.actor, agent.critic, agent.actor_target, agent.critic_target):
        module.double()
    agent.first_critic = agent.critic.first_critic()
    return agent


def test_noise_on_target_actions_is_cut_twice():
    """0.2 n is cut to -0.5 … 0.5 and the sum to -1 … 1."""
    action = torch.tensor([[0.3, 0.9, -0.9, 0.0]], dtype=torch.float64)
    noise = torch.tensor([[1.0, 2.0, -0.25, -9.0]], dtype=torch.float64)
    expected = [[0.5, 1.0, -0.95, -0.5]]
    found = smoothed(action, noise, std=0.2, clip=0.5).numpy()
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_the_target_is_the_reward_and_the_smaller_of_the_next_values():
    """1 + 0.9 * min(5, 4) = 4.6; at an end -2."""
    rows = tensors(0, rows=2)._replace(
        reward=torch.tensor([[1.0], [-2.0]], dtype=torch.float64),
        discount=torch.tensor([[0.9], [0.0]], dtype=torch.float64),
    )
    q_next = torch.tensor([[[5.0], [7.0]], [[4.0], [8.0]]], dtype=torch.float64)  # [E, B, 1]
    np.testing.assert_allclose(td_target(rows, q_next).numpy(), [[4.6], [-2.0]], rtol=1e-12)


@pytest.mark.parametrize("num_critics", [1, 2])
def test_gradients_are_finite_differences(num_critics: int):
    agent = in_double_precision(td3(hidden=[4], num_critics=num_critics, activation="tanh"))
    rows = tensors(1)
    noise = torch.full((5, 2), 0.4, dtype=torch.float64)
    assert_slopes(lambda: agent.critic_loss(rows, noise).loss, list(agent.critic.parameters()))
    assert_slopes(lambda: agent.actor_loss(rows), list(agent.actor.parameters()))


def test_the_actor_climbs_along_the_deterministic_policy_gradient():
    """rlax's loss has the gradient -dQ/da by each action, of which ours is the weighted mean."""
    agent, rows, case = in_double_precision(td3(2)), tensors(3, rows=6), of_rlax("td3")
    parameters = list(agent.actor.parameters())
    action = torch.tanh(agent.actor(rows.obs))  # [B, A]
    agent.first_critic = lambda _, action: (case["dq_da"] * action).sum(1, keepdim=True)[None]
    slope = case["gradient"]  # [B, A]
    expected = torch.autograd.grad((rows.weight * slope * action).sum() / 6, parameters)
    found = torch.autograd.grad(agent.actor_loss(rows), parameters)
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-12)


class PlainTd3:
    """The same in `nn.Linear`, two critics side by side and `torch.optim.Adam`, in float64."""

    def __init__(self, agent: Td3) -> None:
        self.config = agent.config
        state = agent.state_dict()
        self.actor = self._copied(
            [
                state["actor"][f"mlp.layers.{i}.{kind}"]
                for i in range(3)
                for kind in ("weight", "bias")
            ]
        )
        self.critics = [
            self._copied(
                [
                    part
                    for i in range(3)
                    for part in (
                        state["critic"][f"mlp.weights.{i}"][member].T,
                        state["critic"][f"mlp.biases.{i}"][member].squeeze(0),
                    )
                ]
            )
            for member in range(agent.config.num_critics)
        ]
        self.targets = [self._copied(list(each.parameters())) for each in self._networks()]
        of_critics = [part for each in self.critics for part in each.parameters()]
        rate = agent.config.learning_rate
        self.actor_optimizer = torch.optim.Adam(self.actor.parameters(), lr=rate)
        self.critic_optimizer = torch.optim.Adam(of_critics, lr=2 * rate)
        self.updates = 0

    def _networks(self) -> list[nn.Sequential]:
        return [self.actor, *self.critics]

    @staticmethod
    def _copied(parts: list[torch.Tensor]) -> nn.Sequential:
        layers: list[nn.Module] = []
        for weight, bias in zip(parts[::2], parts[1::2], strict=True):
            layer = nn.Linear(weight.shape[1], weight.shape[0]).double()
            layer.weight.data.copy_(weight)
            layer.bias.data.copy_(bias)
            layers += [layer, nn.ReLU()]
        return nn.Sequential(*layers[:-1])

    def update(self, b: Batch, noise: torch.Tensor) -> tuple[float, np.ndarray]:
        config = self.config
        self.updates += 1
        obs, next_obs = (torch.from_numpy(x).double() for x in (b.obs, b.next_obs))
        action = torch.from_numpy((b.action - MIDDLE) / HALF).double()
        reward, discount, weight = (
            torch.from_numpy(x).double()[:, None] for x in (b.reward, b.discount, b.weight)
        )
        actor_target, *critic_targets = self.targets
        with torch.no_grad():
            off = torch.clamp(
                noise * config.target_noise, -config.target_noise_clip, config.target_noise_clip
            )
            next_action = torch.clamp(torch.tanh(actor_target(next_obs)) + off, -1, 1)
            values = [each(torch.cat([next_obs, next_action], 1)) for each in critic_targets]
            y = reward + discount * torch.stack(values).min(0).values
        errors = [each(torch.cat([obs, action], 1)) - y for each in self.critics]
        self.critic_optimizer.zero_grad()
        loss = sum((weight * each**2).mean() / 2 for each in errors)
        loss.backward()
        self.critic_optimizer.step()
        if self.updates % config.policy_delay == 0:
            self.actor_optimizer.zero_grad()
            chosen = torch.tanh(self.actor(obs))
            (-(weight * self.critics[0](torch.cat([obs, chosen], 1))).mean()).backward()
            self.actor_optimizer.step()
            for network, target in zip(self._networks(), self.targets, strict=True):
                for new, old in zip(network.parameters(), target.parameters(), strict=True):
                    old.data.copy_(config.tau * new.data + (1 - config.tau) * old.data)
        size = torch.stack(errors).abs().mean(0).squeeze(1)
        return float(loss.detach()), size.detach().numpy()


@pytest.mark.parametrize(
    "settings",
    [
        {"policy_delay": 2},
        {"policy_delay": 3, "num_critics": 3},
        {"num_critics": 1, "policy_delay": 1, "target_noise": 0.0},
    ],
)
def test_six_updates_agree_with_another_implementation(settings: dict[str, Any]):
    agent = td3(4, tau=0.3, critic_learning_rate=0.02, **settings)
    plain = PlainTd3(agent)
    for seed in range(6):
        noise = torch.zeros(8, 2)
        if agent.config.target_noise:
            state = agent.noise_generator.get_state()
            noise = agent.normal(8, 2)
            agent.noise_generator.set_state(state)
        update = agent.update(batch(seed))
        loss, size = plain.update(batch(seed), noise.double())
        assert float(update.metrics["loss_critic"]) == pytest.approx(loss, rel=1e-4)
        np.testing.assert_allclose(update.td_error(), size, rtol=1e-4, atol=1e-5)
    actor = [part.detach().numpy() for part in plain.actor.parameters()]
    for ours, theirs in zip(agent.actor.parameters(), actor, strict=True):
        np.testing.assert_allclose(ours.detach().numpy(), theirs, rtol=1e-3, atol=1e-5)
    actor = [part.detach().numpy() for part in plain.targets[0].parameters()]
    for ours, theirs in zip(agent.actor_target.parameters(), actor, strict=True):
        np.testing.assert_allclose(ours.numpy(), theirs, rtol=1e-3, atol=1e-5)
    for member in range(agent.config.num_critics):
        for i, layer in enumerate(
            [each for each in plain.targets[1 + member] if isinstance(each, nn.Linear)]
        ):
            ours = agent.critic_target.mlp.weights[i][member].T
            np.testing.assert_allclose(
                ours.numpy(), layer.weight.detach().numpy(), rtol=1e-3, atol=1e-5
            )
