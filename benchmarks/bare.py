"""The floor: a bare torch loop that makes the same DQN updates, without actors or framework."""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import gymnasium
import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 - as all of torch's users call it
from numpy.typing import NDArray
from torch import Tensor, nn

CAPACITY = 100_000
TARGET_INTERVAL = 500
LEARNING_RATE = 5e-4
GAMMA = 0.99


class Speed(NamedTuple):
    """What a stretch of updates took."""

    updates_per_s: float  # by the clock
    learner_us: float  # of CPU per update, of the learner's thread alone: robust against neighbours
    samples_per_s: float


class BareLoop:
    """numpy ring, one packed row per transition; eager torch; `torch.optim.Adam(fused=True)`.

    One torch thread, no denormals. Sampling with replacement, Huber loss, no double Q, no
    clipping, a hard copy of the target every 500 updates. Nothing is logged or checked.
    """

    def __init__(self, hidden: list[int], batch_size: int, rows: int, seed: int) -> None:
        torch.manual_seed(seed)
        first, second = hidden
        self._q, self._q_target = (
            nn.Sequential(
                nn.Linear(4, first), nn.ReLU(),
                nn.Linear(first, second), nn.ReLU(),
                nn.Linear(second, 2),
            )
            for _ in range(2)
        )  # fmt: skip
        self._q_target.load_state_dict(self._q.state_dict())
        self._optimizer = torch.optim.Adam(self._q.parameters(), lr=LEARNING_RATE, fused=True)
        self._rng = np.random.default_rng(seed)
        self._batch_size = batch_size
        self._rows = rows
        self._ring = random_play(rows, seed)
        self._updates = 0

    def run(self, updates: int) -> Speed:
        """Makes so many updates; the calling thread's torch settings are as before afterwards."""
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        torch.set_flush_denormal(True)
        try:
            began, cpu_began = time.perf_counter(), time.thread_time()
            for _ in range(updates):
                self._update()
            cpu_s, wall_s = time.thread_time() - cpu_began, time.perf_counter() - began
        finally:
            torch.set_flush_denormal(False)
            torch.set_num_threads(threads)
        return Speed(updates / wall_s, 1e6 * cpu_s / updates, 0.0)

    def _update(self) -> None:
        batch = self._ring[self._rng.integers(0, self._rows, self._batch_size)]  # [B]
        q = self._q(torch.from_numpy(batch["obs"]))  # [B, 2]
        q_sa = q.gather(1, torch.from_numpy(batch["action"])[:, None]).squeeze(1)  # [B]
        with torch.no_grad():
            q_next = self._q_target(torch.from_numpy(batch["next_obs"])).max(1).values  # [B]
            y = _tensor(batch["reward"]) + _tensor(batch["discount"]) * q_next
        loss = F.huber_loss(q_sa, y)
        self._optimizer.zero_grad()
        loss.backward()
        self._optimizer.step()
        self._updates += 1
        if self._updates % TARGET_INTERVAL == 0:
            self._q_target.load_state_dict(self._q.state_dict())


def _tensor(column: NDArray[Any]) -> Tensor:
    return torch.from_numpy(column)


def random_play(rows: int, seed: int) -> NDArray[Any]:
    """A ring of CartPole transitions of a random policy, `rows` of it filled.  [CAPACITY]"""
    ring = np.zeros(
        CAPACITY,
        np.dtype(
            [
                ("action", np.int64),
                ("obs", np.float32, 4),
                ("next_obs", np.float32, 4),
                ("reward", np.float32),
                ("discount", np.float32),
            ],
            align=True,
        ),
    )
    env = gymnasium.make("CartPole-v1")
    rng = np.random.default_rng(seed)
    obs, _ = env.reset(seed=seed)
    for row in ring[:rows]:
        action = int(rng.integers(2))
        next_obs, reward, terminated, truncated, _ = env.step(action)
        discount = 0.0 if terminated else GAMMA
        for name, value in zip(
            ("obs", "action", "reward", "discount", "next_obs"),
            (obs, action, reward, discount, next_obs),
            strict=True,
        ):
            row[name] = value
        obs = env.reset()[0] if terminated or truncated else next_obs
    env.close()
    return ring
