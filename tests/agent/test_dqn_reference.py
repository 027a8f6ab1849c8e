"""Complete updates of DQN on both backends against an independent implementation in float64."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - as all of torch's users call it
from numpy.typing import NDArray
from torch import Tensor

from border_cli.agent.config import DqnConfig
from border_cli.agent.dqn import Dqn
from border_cli.core.spaces import ACTION_MASK, DictSpace, DiscreteSpace, EnvSpec
from border_cli.core.types import Batch
from tests.support.continuous_env import batch
from tests.support.libraries import both_backends
from tests.support.spaces import box, reals

ACTIONS = 4
MASKS = box((ACTIONS,), "uint8")
MASKED = DictSpace({"seen": reals(3), ACTION_MASK: MASKS}, masked=True)
FORMS: dict[str, dict[str, Any]] = {
    "double": {"double": True},
    "single, mse": {"double": False, "loss": "mse"},
    "clipped": {"max_grad_norm": 0.01},
    "copied target": {"tau": 1.0},
    "dueling": {"dueling": True},
    "layer norm": {"layer_norm": True},
    "dueling with layer norm": {"dueling": True, "layer_norm": True},
    "tanh": {"activation": "tanh"},
    "adamw": {"optimizer": "AdamW", "optimizer_kwargs": {"weight_decay": 0.1}},
}


def agent_of(**settings: Any) -> Dqn:
    config = DqnConfig(
        **{"hidden": [16, 12], "learning_rate": 3e-3, "target_interval": 2, "tau": 0.3, **settings}
    )
    action = DiscreteSpace(ACTIONS)
    env = EnvSpec(id="Masked", observation=MASKED, action=action, max_episode_steps=None)
    return Dqn(config, spec=env, device="cpu", seed=1)


def rows_of(seed: int) -> Batch:
    """Returns prioritized three-step transitions, some cut short or terminal, with masks."""
    drawn, rng = batch(seed, rows=32, actions=ACTIONS), np.random.default_rng(100 + seed)
    masks = rng.integers(0, 2, (2, 32, ACTIONS)).astype(np.uint8)
    masks[0, np.arange(32), drawn.action] = 1
    masks[1, np.arange(32), rng.integers(ACTIONS, size=32)] = 1
    discounts = np.array([0, 0.99, 0.99**2, 0.99**3], np.float32)
    return replace(
        drawn,
        obs={"seen": drawn.obs, ACTION_MASK: masks[0]},
        next_obs={"seen": drawn.next_obs, ACTION_MASK: masks[1]},
        discount=discounts[rng.integers(4, size=32)],
    )


class ReferenceDqn:
    """DQN as a plain script in float64: autograd, torch.nn.functional, and Adam as in the paper."""

    def __init__(self, agent: Dqn) -> None:
        self.config = agent.config
        saved = agent.state_dict()["online"]
        self.online, self.target = (
            {name: torch.from_numpy(array.copy()).double() for name, array in saved.items()}
            for _ in range(2)
        )
        self.leaves = [weight.requires_grad_() for weight in self.online.values()]
        self.first, self.second = ([torch.zeros_like(w) for w in self.leaves] for _ in range(2))
        self.steps = 0

    def q(self, weights: dict[str, Tensor], seen: Any) -> Tensor:
        rows = torch.from_numpy(seen).double()
        if not self.config.dueling:
            return self.stream(weights, "mlp", rows)
        rows = self.stream(weights, "shared", rows)
        value, advantage = (self.stream(weights, part, rows) for part in ("value", "advantage"))
        return value + advantage - advantage.mean(1, keepdim=True)

    def stream(self, weights: dict[str, Tensor], prefix: str, rows: Tensor) -> Tensor:
        count = sum(name.startswith(f"{prefix}.layers.") for name in weights) // 2
        for i in range(count):
            layer, norm = f"{prefix}.layers.{i}", f"{prefix}.norms.{i}"
            rows = F.linear(rows, weights[f"{layer}.weight"], weights[f"{layer}.bias"])
            if i == count - 1 and prefix != "shared":
                return rows
            if self.config.layer_norm:
                scale, shift = weights[f"{norm}.weight"], weights[f"{norm}.bias"]
                rows = F.layer_norm(rows, scale.shape, scale, shift)
            rows = torch.tanh(rows) if self.config.activation == "tanh" else torch.relu(rows)
        return rows

    def update(self, b: Any) -> tuple[float, NDArray[np.float64]]:
        """Returns the loss and the TD errors."""
        row = torch.arange(len(b.reward))
        with torch.no_grad():
            q_next = self.q(self.target, b.next_obs["seen"])
            ranking = self.q(self.online, b.next_obs["seen"]) if self.config.double else q_next
            invalid = torch.from_numpy(b.next_obs[ACTION_MASK] == 0)
            best = ranking.masked_fill(invalid, -torch.inf).argmax(1)
            reward, discount, weight = (
                torch.from_numpy(part).double() for part in (b.reward, b.discount, b.weight)
            )
            y = reward + discount * q_next[row, best]
        q = self.q(self.online, b.obs["seen"])[row, torch.from_numpy(b.action)]
        of_row = F.mse_loss if self.config.loss == "mse" else F.smooth_l1_loss
        loss = (weight * of_row(q, y, reduction="none")).mean()
        self.steps += 1
        self.step(torch.autograd.grad(loss, self.leaves))
        if self.steps % self.config.target_interval == 0:
            with torch.no_grad():
                for name, target in self.target.items():
                    target.lerp_(self.online[name], self.config.tau)
        return loss.item(), (y - q).detach().numpy()

    @torch.no_grad()
    def step(self, gradient: tuple[Tensor, ...]) -> None:
        norm = torch.cat([part.flatten() for part in gradient]).norm()
        scale = (self.config.max_grad_norm / norm).clamp(max=1.0)
        rate = self.config.learning_rate
        decay = self.config.optimizer_kwargs.get("weight_decay", 0)
        for w, g, m, v in zip(self.leaves, gradient, self.first, self.second, strict=True):
            m.mul_(0.9).add_(0.1 * scale * g)
            v.mul_(0.999).add_(0.001 * (scale * g) ** 2)
            m_hat, v_hat = m / (1 - 0.9**self.steps), v / (1 - 0.999**self.steps)
            w -= rate * (m_hat / (v_hat.sqrt() + 1e-8) + decay * w)


@both_backends
@pytest.mark.parametrize("form", FORMS)
def test_five_updates_are_those_of_an_implementation_in_float64(form: str, backend: str) -> None:
    agent = agent_of(backend=backend, **FORMS[form])
    plain, before = ReferenceDqn(agent), agent.state_dict()["online"]
    for seed in range(5):
        update = agent.update(rows_of(seed))
        loss, errors = plain.update(rows_of(seed))
        assert float(update.metrics["loss"]) == pytest.approx(loss, rel=1e-5)
        np.testing.assert_allclose(update.td_error(), errors, rtol=0, atol=1e-5)
    state = agent.state_dict()
    for part, weights in (("online", plain.online), ("target", plain.target)):
        assert state[part].keys() == weights.keys()
        for name, weight in weights.items():
            expected = weight.detach().numpy()
            np.testing.assert_allclose(state[part][name], expected, rtol=0, atol=1e-5, err_msg=name)
    assert all(np.abs(state["online"][name] - array).max() > 1e-3 for name, array in before.items())
