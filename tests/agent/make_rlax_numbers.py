"""Writes `rlax.json`: outputs of DeepMind's rlax for random inputs, in double precision.

Usage: pip install rlax==0.1.9 && python tests/agent/make_rlax_numbers.py
"""

from __future__ import annotations

import importlib.metadata
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import rlax
from numpy.typing import NDArray

B, ACTIONS, N, TARGETS = 6, 3, 4, 5
ATOMS = np.linspace(-2, 4, N)
Arrays = dict[str, NDArray[Any]]


def map_rows(function: Callable[..., Any], *arrays: NDArray[Any], **same: Any) -> NDArray[Any]:
    """Applies `function` to each row of the arrays; `same` is passed to every call. [B, …]"""
    rows = zip(*arrays, strict=True)
    return np.array([function(*map(jax.numpy.asarray, row), **same) for row in rows])


def softmax(logits: NDArray[Any]) -> NDArray[Any]:
    """Returns the softmax over the last axis."""
    powers = np.exp(logits)
    shares: NDArray[Any] = powers / powers.sum(-1, keepdims=True)
    return shares


class CaseGenerator:
    """Random test cases from one generator, rounded to two decimals."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def normal(self, *shape: int) -> NDArray[Any]:
        return self.rng.normal(0, 2, shape).round(2)

    def uniform(self, *shape: int) -> NDArray[Any]:
        return self.rng.random(shape).round(2)

    def transitions(self) -> Arrays:
        """Returns transitions to combine with network outputs; the last one is terminal."""
        return {
            "action": self.rng.integers(ACTIONS, size=B),
            "reward": self.normal(B),
            "discount": np.array([0.9] * (B - 1) + [0.0]),
            "weight": self.uniform(B),
        }

    def td_errors(self) -> Arrays:
        case = self.transitions()
        q, q_next, chooser = (self.normal(B, ACTIONS) for _ in range(3))
        rows = q, case["action"], case["reward"], case["discount"], q_next
        return case | {
            **{"q": q, "q_next": q_next, "q_next_online": chooser},
            "td_error": map_rows(rlax.q_learning, *rows),
            "td_error double": map_rows(rlax.double_q_learning, *rows, chooser),
        }

    def distributions(self) -> Arrays:
        """Returns a case with losses of C51."""
        case = self.transitions()
        logits, next_logits, online = (self.normal(B, ACTIONS, N) for _ in range(3))
        atoms = np.tile(ATOMS, (B, 1))
        rows = atoms, logits, case["action"], case["reward"], case["discount"], atoms, next_logits
        chooser = softmax(online) @ ATOMS
        return case | {
            **{"atoms": ATOMS, "outputs": logits, "next": next_logits, "next_online": online},
            "loss": map_rows(rlax.categorical_q_learning, *rows),
            "loss double": map_rows(rlax.categorical_double_q_learning, *rows, chooser),
        }

    def projection(self) -> Arrays:
        """Returns projections onto the atoms, including positions beyond the outermost atoms."""
        positions, mass = self.normal(4 * B, N), softmax(self.normal(4 * B, N))
        projected = map_rows(
            rlax.categorical_l2_project, positions, mass, np.tile(ATOMS, (4 * B, 1))
        )
        return {"atoms": ATOMS, "positions": positions, "mass": mass, "projected": projected}

    def quantile_regression(self) -> Arrays:
        fractions, weight = self.uniform(B, N), self.uniform(B)
        quantiles, target = self.normal(B, N), self.normal(B, TARGETS)
        inputs = {"quantiles": quantiles, "fractions": fractions, "target": target}
        losses = {
            f"loss {kappa}": map_rows(
                rlax.quantile_regression_loss, *inputs.values(), huber_param=kappa
            )
            for kappa in (0.0, 0.3, 1.0, 2.5)
        }
        return {**inputs, "weight": weight, **losses}

    def quantiles(self, fractions: NDArray[Any], choosers: int, targets: int) -> Arrays:
        """Returns losses of QR-DQN and IQN; the quantiles in `chooser` select a'."""
        case = self.transitions()
        outputs, *of_next = (self.normal(B, count, ACTIONS) for count in (N, choosers, targets))
        rows = outputs, fractions, case["action"], case["reward"], case["discount"], *of_next
        losses = {
            f"loss {kappa}": map_rows(rlax.quantile_q_learning, *rows, huber_param=kappa)
            for kappa in (0.2, 1.0)
        }
        inputs = {"fractions": fractions, "outputs": outputs}
        return {**case, **inputs, "chooser": of_next[0], "next": of_next[1], **losses}

    def expectiles(self) -> Arrays:
        v, q = self.normal(3 * B), self.normal(3 * B)
        losses = {
            f"loss {expectile}": map_rows(rlax.expectile_loss, v, q, expectile=expectile)
            for expectile in (0.1, 0.5, 0.9)
        }
        return {"v": v, "q": q, **losses}

    def policy_gradient(self) -> Arrays:
        """Returns gradients of the loss with respect to actions, given dQ/da as `dq_da`."""
        action, dq_da = np.tanh(self.normal(B, 2)), self.normal(B, 2)
        gradient = jax.grad(lambda *row: rlax.dpg_loss(*row).sum())
        return {"dq_da": dq_da, "gradient": map_rows(gradient, action, dq_da)}

    def cross_entropy(self) -> Arrays:
        logits, action = self.normal(B, ACTIONS), self.rng.integers(ACTIONS, size=B)
        loss = map_rows(rlax.categorical_cross_entropy, np.eye(ACTIONS)[action], logits)
        return {"logits": logits, "action": action, "loss": loss}


def cases() -> dict[str, Arrays]:
    """Returns the inputs and outputs of all cases, keyed by name."""
    draws = CaseGenerator(0)
    fixed = np.tile((np.arange(N) + 0.5) / N, (B, 1))
    return {
        "dqn": draws.td_errors(),
        "c51": draws.distributions(),
        "projection": draws.projection(),
        "quantile_regression": draws.quantile_regression(),
        "qrdqn": draws.quantiles(fixed, choosers=N, targets=N),
        "iqn": draws.quantiles(draws.uniform(B, N), choosers=TARGETS, targets=3),
        "expectile": draws.expectiles(),
        "td3": draws.policy_gradient(),
        "bc": draws.cross_entropy(),
    }


if __name__ == "__main__":
    with jax.enable_x64(True):
        all_cases = cases()
    written: dict[str, Any] = {"rlax": importlib.metadata.version("rlax")}
    for name, case in all_cases.items():
        written[name] = {key: array.tolist() for key, array in case.items()}
    path = Path(__file__).with_name("rlax.json")
    path.write_text(json.dumps(written) + "\n", encoding="utf-8")
