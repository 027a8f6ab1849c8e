"""The update against another implementation of it: plain Python, row by row."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from border_cli.agent.config import DqnConfig
from border_cli.agent.dqn import Dqn
from border_cli.core.types import Batch

HIDDEN, ACTIONS, INPUTS = 4, 2, 3


class PlainNetwork:
    """Two layers; parameters in a dict from (layer, kind, indices …) to a number."""

    def __init__(self, arrays: dict[str, Any]) -> None:
        self.values: dict[tuple[Any, ...], float] = {}
        for layer in (0, 1):
            weight, bias = (arrays[f"mlp.layers.{layer}.{kind}"] for kind in ("weight", "bias"))
            for out in range(len(bias)):
                self.values[layer, "b", out] = float(bias[out])
                for i in range(weight.shape[1]):
                    self.values[layer, "w", out, i] = float(weight[out, i])

    def hidden(self, s: Any) -> list[float]:
        p = self.values
        sums = [
            p[0, "b", h] + sum(p[0, "w", h, i] * float(s[i]) for i in range(INPUTS))
            for h in range(HIDDEN)
        ]
        return [max(0.0, each) for each in sums]

    def q(self, s: Any) -> list[float]:
        p, h = self.values, self.hidden(s)
        return [
            p[1, "b", a] + sum(p[1, "w", a, j] * h[j] for j in range(HIDDEN))
            for a in range(ACTIONS)
        ]

    def gradient_of_q(self, s: Any, a: int) -> dict[tuple[Any, ...], float]:
        h, gradient = self.hidden(s), dict.fromkeys(self.values, 0.0)
        gradient[1, "b", a] = 1.0
        for j in range(HIDDEN):
            gradient[1, "w", a, j] = h[j]
            if h[j] > 0:
                gradient[0, "b", j] = self.values[1, "w", a, j]
                for i in range(INPUTS):
                    gradient[0, "w", j, i] = self.values[1, "w", a, j] * float(s[i])
        return gradient


class PlainDqn:
    def __init__(self, config: DqnConfig, arrays: dict[str, Any]) -> None:
        self.config, self.t = config, 0
        self.online, self.target = PlainNetwork(arrays), PlainNetwork(arrays)
        self.mean = dict.fromkeys(self.online.values, 0.0)
        self.square = dict.fromkeys(self.online.values, 0.0)

    def error(self, batch: Batch, row: int) -> float:
        q_next = self.target.q(batch.next_obs[row])
        chooser = self.online.q(batch.next_obs[row]) if self.config.double else q_next
        best = max(range(ACTIONS), key=chooser.__getitem__)
        y = float(batch.reward[row]) + float(batch.discount[row]) * q_next[best]
        return y - self.online.q(batch.obs[row])[batch.action[row]]

    def update(self, batch: Batch) -> tuple[list[float], float]:
        rows, config = len(batch), self.config
        errors = [self.error(batch, row) for row in range(rows)]
        gradient = dict.fromkeys(self.online.values, 0.0)
        for row, error in enumerate(errors):
            slope = 2 * error if config.loss == "mse" else max(-1.0, min(1.0, error))
            of_q = self.online.gradient_of_q(batch.obs[row], batch.action[row])
            for key in gradient:
                gradient[key] -= float(batch.weight[row]) * slope * of_q[key] / rows
        norm = math.sqrt(sum(each**2 for each in gradient.values()))
        if config.max_grad_norm is not None and norm > config.max_grad_norm:
            gradient = {key: g * config.max_grad_norm / norm for key, g in gradient.items()}
        self.adam(gradient)
        if self.t % config.target_interval == 0:
            for key, value in self.online.values.items():
                old = self.target.values[key]
                self.target.values[key] = config.tau * value + (1 - config.tau) * old
        return errors, norm

    def adam(self, gradient: dict[tuple[Any, ...], float]) -> None:
        self.t += 1
        for key, g in gradient.items():
            self.mean[key] = 0.9 * self.mean[key] + 0.1 * g
            self.square[key] = 0.999 * self.square[key] + 0.001 * g * g
            mean = self.mean[key] / (1 - 0.9**self.t)
            square = self.square[key] / (1 - 0.999**self.t)
            self.online.values[key] -= self.config.learning_rate * mean / (square**0.5 + 1e-8)


@pytest.mark.parametrize("double", [False, True])
@pytest.mark.parametrize("loss", ["huber", "mse"])
@pytest.mark.parametrize("max_grad_norm", [None, 0.1])
@pytest.mark.parametrize(("target_interval", "tau"), [(2, 1.0), (1, 0.3)])
def test_five_updates_agree_with_plain_python(
    spec, make_batch, double, loss, max_grad_norm, target_interval, tau
):
    config = DqnConfig(
        hidden=[HIDDEN],
        learning_rate=0.05,
        double=double,
        loss=loss,
        max_grad_norm=max_grad_norm,
        target_interval=target_interval,
        tau=tau,
    )
    agent = Dqn(config, spec=spec, device="cpu", seed=6)
    plain = PlainDqn(config, agent.state_dict()["online"])
    for seed in range(5):
        batch = make_batch(seed)
        update = agent.update(batch)
        errors, norm = plain.update(batch)
        np.testing.assert_allclose(update.td_error(), errors, rtol=1e-4, atol=1e-5)
        if max_grad_norm is not None:
            assert float(update.metrics["grad_norm"]) == pytest.approx(norm, rel=1e-4)
            assert norm > max_grad_norm  # clipping does take part
    state = agent.state_dict()
    for which, network in (("online", plain.online), ("target", plain.target)):
        expected = network.values
        ours = PlainNetwork(state[which]).values
        assert ours == {
            key: pytest.approx(value, rel=1e-3, abs=1e-4) for key, value in expected.items()
        }
