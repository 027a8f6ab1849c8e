"""Baselines for learning: bare PyTorch loops that make the same DQN updates without a framework.

Included: sampling and fetching a batch, forward pass, Huber loss, backward pass, Adam, and a hard
target update every 500 updates. Not included: priorities, importance weights, metrics, checks,
rate limiting, recording. `PlayingLoop` also acts and steps its environment.
"""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import gymnasium
import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 - the usual alias
from numpy.typing import NDArray
from torch import Tensor, nn

from border_cli.nn.device import learner_thread

CAPACITY = 100_000
BATCH_SIZE = 64
TARGET_INTERVAL = 500
LEARNING_RATE = 5e-4
GAMMA = 0.99
ROW = np.dtype(
    [
        ("action", np.int64),
        ("obs", np.float32, 4),
        ("next_obs", np.float32, 4),
        ("reward", np.float32),
        ("discount", np.float32),
    ],
    align=True,
)


class Speed(NamedTuple):
    """The speed of a series of updates."""

    updates_per_s: float  # wall time
    learner_us: float  # CPU time of the learner thread per update


class BareLoop:
    """DQN with a numpy ring of packed rows, eager torch and `torch.optim.Adam(fused=True)`."""

    def __init__(self, ring: NDArray[Any], rows: int, *, seed: int) -> None:
        torch.manual_seed(seed)
        self.q, self.q_target = (
            nn.Sequential(
                nn.Linear(4, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 2)
            )
            for _ in range(2)
        )  # fmt: skip
        self.q_target.load_state_dict(self.q.state_dict())
        self.weights = tuple(self.q.parameters())
        self.ring, self.rows = ring, rows
        self.rng = np.random.default_rng(seed)
        self.updates = 0
        self.make_optimizer()

    def make_optimizer(self) -> None:
        self._optimizer = torch.optim.Adam(self.weights, lr=LEARNING_RATE, fused=True)

    def descend(self, loss: Tensor) -> None:
        """Takes one Adam step."""
        self._optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        self._optimizer.step()

    def run(self, updates: int) -> Speed:
        """Makes `updates` updates, then restores the calling thread's torch settings."""
        with learner_thread(num_threads=1):
            began = now()
            for _ in range(updates):
                self.update()
            return speed_between(began, now(), updates)

    def update(self) -> None:
        """Makes one update on a batch from the ring."""
        index = self.rng.integers(0, self.rows, BATCH_SIZE)  # [B]
        rows = self.ring[index]  # [B]
        batch = {name: torch.from_numpy(rows[name]) for name in ROW.names or ()}
        q_sa = self.q(batch["obs"]).gather(1, batch["action"][:, None]).squeeze(1)  # [B]
        with torch.no_grad():
            q_next = self.q_target(batch["next_obs"]).max(1).values  # [B]
            y = batch["reward"] + batch["discount"] * q_next  # [B]
        self.descend(F.huber_loss(q_sa, y))
        self.updates += 1
        if self.updates % TARGET_INTERVAL == 0:
            self.q_target.load_state_dict(self.q.state_dict())


class SameKernelsLoop(BareLoop):
    """A loop that calls Adam's fused kernel directly, as `border_cli.nn.optimizer` does.

    This avoids the bookkeeping of `torch.optim`, which takes a tenth of a small update or more.
    """

    def make_optimizer(self) -> None:
        self._parameters = [weight.detach() for weight in self.weights]
        self._means = [torch.zeros_like(parameter) for parameter in self._parameters]
        self._squares = [torch.zeros_like(parameter) for parameter in self._parameters]
        self._steps = [torch.zeros(()) for _ in self._parameters]

    def descend(self, loss: Tensor) -> None:
        self.step(torch.autograd.grad(loss, self.weights))

    def step(self, gradient: tuple[Tensor, ...]) -> None:
        """Calls Adam's fused kernel."""
        torch._foreach_add_(self._steps, 1)
        torch._fused_adam_(
            self._parameters, gradient, self._means, self._squares, [], self._steps,
            lr=LEARNING_RATE, beta1=0.9, beta2=0.999, weight_decay=0.0, eps=1e-8,
            amsgrad=False, maximize=False,
        )  # fmt: skip


class WrittenOutLoop(SameKernelsLoop):
    """The fastest loop we know: gradients are written out by hand, so autograd is not needed."""

    def update(self) -> None:
        """Makes one update on a batch from the ring."""
        index = self.rng.integers(0, self.rows, BATCH_SIZE)  # [B]
        rows = self.ring[index]  # [B]
        batch = {name: torch.from_numpy(rows[name]) for name in ROW.names or ()}
        (w1, b1, w2, b2, w3, b3), action = self._parameters, batch["action"][:, None]
        with torch.no_grad():
            h1 = torch.relu_(torch.addmm(b1, batch["obs"], w1.t()))  # [B, 256]
            h2 = torch.relu_(torch.addmm(b2, h1, w2.t()))  # [B, 256]
            q = torch.addmm(b3, h2, w3.t())  # [B, 2]
            q_next = self.q_target(batch["next_obs"]).max(1).values  # [B]
            y = batch["reward"] + batch["discount"] * q_next  # [B]
            slope = (q.gather(1, action).squeeze(1) - y).clamp(-1, 1) / BATCH_SIZE  # Huber loss
            d3 = torch.zeros_like(q).scatter_(1, action, slope[:, None])  # [B, 2]
            d2 = d3.mm(w3).mul_(h2 > 0)  # [B, 256]
            d1 = d2.mm(w2).mul_(h1 > 0)  # [B, 256]
            self.step(
                (
                    d1.t().mm(batch["obs"]), d1.sum(0),
                    d2.t().mm(h1), d2.sum(0),
                    d3.t().mm(h2), d3.sum(0),
                )
            )  # fmt: skip
        self.updates += 1
        if self.updates % TARGET_INTERVAL == 0:
            self.q_target.load_state_dict(self.q.state_dict())


def now() -> tuple[float, float]:
    """Returns the clock and the CPU time of this thread, in seconds."""
    return time.perf_counter(), time.thread_time()


def speed_between(began: tuple[float, float], ended: tuple[float, float], updates: int) -> Speed:
    """Returns the speed of `updates` updates; both times must come from the same thread."""
    wall_s, thread_s = (end - start for start, end in zip(began, ended, strict=True))
    return Speed(updates_per_s=updates / wall_s, learner_us=1e6 * thread_s / updates)


def random_play(rows: int, seed: int) -> NDArray[Any]:
    """Returns a ring with `rows` CartPole transitions of a random policy.  [CAPACITY]"""
    ring = np.zeros(CAPACITY, ROW)
    env = gymnasium.make("CartPole-v1")
    rng = np.random.default_rng(seed)
    obs, _ = env.reset(seed=seed)
    for row in range(rows):
        action = int(rng.integers(2))
        next_obs, reward, terminated, truncated, _ = env.step(action)
        discount = 0.0 if terminated else GAMMA
        ring[row] = (action, obs, next_obs, reward, discount)
        obs = env.reset()[0] if terminated or truncated else next_obs
    env.close()
    return ring
