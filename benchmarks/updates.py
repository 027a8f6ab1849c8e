"""Updates/s of each kind of agent against a bare PyTorch loop that does the same arithmetic.

    python -m benchmarks.updates [--repetitions 5] [--agents dqn iqn …] [--seconds 4]

Both use the same precomputed batches; the bare loop (`bare_updates.py`) uses plain modules,
autograd and `torch.optim.Adam(fused=True)`. One torch thread, [256, 256], batch 64 for dqn and iqn
and 256 for the others, no clipping; both flush denormals and retain freed memory. Each measurement
runs in its own process, and the two contenders of an agent take turns.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch

from benchmarks import bare_updates
from benchmarks.isolated import call
from benchmarks.table import Reading, column, emit, make_parser, ratios, summary, take_turns
from border_cli.core.spaces import BoxSpace, DiscreteSpace, EnvSpec
from border_cli.core.types import Batch
from border_cli.nn.device import learner_thread
from border_cli.registry import AGENTS, register_builtin

BATCHES = 64
DISCRETE = {"dqn": bare_updates.Dqn, "iqn": bare_updates.Iqn}
CONTINUOUS = {"sac": bare_updates.Sac, "td3": bare_updates.Td3, "iql": bare_updates.Iql}
AGENT_NAMES = [*DISCRETE, *CONTINUOUS]
SETTINGS: dict[str, Any] = {"hidden": [256, 256], "max_grad_norm": None, "num_threads": 1}
HARD_TARGET: dict[str, Any] = {"double": False, "tau": 1.0, "target_interval": 500}
SETTLED_S = 0.5


def _box(size: int) -> BoxSpace:
    low = np.full(size, -1, np.float32)
    return BoxSpace(shape=(size,), dtype="float32", low=low, high=-low)


def spec_of(name: str) -> EnvSpec:
    discrete = name in DISCRETE
    return EnvSpec(
        id="Bench-v0",
        observation=_box(bare_updates.OBS),
        action=DiscreteSpace(bare_updates.ACTIONS) if discrete else _box(bare_updates.ACTION_SIZE),
        max_episode_steps=100,
    )


def batches_of(name: str, seed: int, rows: int | None = None) -> list[Batch]:
    """Returns precomputed batches, by default of 64 rows for discrete actions, else 256."""
    rng = np.random.default_rng(seed)
    rows = rows or (64 if name in DISCRETE else 256)

    def numbers(*shape: int) -> Any:
        return rng.uniform(-0.9, 0.9, shape).astype(np.float32)

    return [
        Batch(
            obs=numbers(rows, bare_updates.OBS),
            action=rng.integers(bare_updates.ACTIONS, size=rows)
            if name in DISCRETE
            else numbers(rows, bare_updates.ACTION_SIZE),
            reward=numbers(rows),
            discount=np.full(rows, 0.99, np.float32),
            next_obs=numbers(rows, bare_updates.OBS),
            weight=np.ones(rows, np.float32),
            index=np.arange(rows),
        )
        for _ in range(BATCHES)
    ]


def rate(update: Callable[[int], object], seconds: float) -> Reading:
    """Measures updates/s."""
    done, began_s, until_s = 0, 0.0, time.perf_counter() + SETTLED_S
    while (now_s := time.perf_counter()) < until_s or not began_s:
        if now_s >= until_s:
            done, began_s, until_s = 0, now_s, now_s + seconds
        for i in range(10):
            update(i + done)
        done += 10
    return {"updates_per_s": done / (time.perf_counter() - began_s)}


def ours(name: str, seed: int, seconds: float) -> Reading:
    """Measures updates/s of our agent."""
    register_builtin()
    entry = AGENTS.entry(name)
    rows = 64 if name in DISCRETE else 256
    settings = SETTINGS | (HARD_TARGET if name in DISCRETE else {})
    config = replace(entry.config_type(), **settings, batch_size=rows)
    agent = AGENTS.build(config, spec=spec_of(name), device="cpu", seed=seed)
    batches = batches_of(name, seed)
    with agent.learner_thread():
        return rate(lambda i: agent.update(batches[i % BATCHES]), seconds)


def bare(name: str, seed: int, seconds: float) -> Reading:
    """Measures updates/s of the bare loop."""
    torch.manual_seed(seed)
    loop = (DISCRETE | CONTINUOUS)[name]()
    batches = []
    for batch in batches_of(name, seed):
        columns = {key: getattr(batch, key) for key in ("obs", "action", "next_obs")}
        columns |= {key: getattr(batch, key) for key in ("reward", "discount")}
        tensors = {key: torch.from_numpy(value) for key, value in columns.items()}
        batches.append({key: x if x.dim() > 1 else x[:, None] for key, x in tensors.items()})
    with learner_thread(num_threads=1):
        return rate(lambda i: loop.update(batches[i % BATCHES]), seconds)


def _measure(kind: str, name: str, seconds: float, seed: int) -> Reading:
    reading: Reading = call(f"benchmarks.updates:{kind}", name=name, seed=seed, seconds=seconds)
    return reading


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--agents", nargs="+", choices=AGENT_NAMES, default=AGENT_NAMES)
    parser.add_argument(
        "--seconds", type=float, default=4.0, help="seconds per measurement (default: 4)"
    )
    arguments = parser.parse_args()
    for name in arguments.agents:
        contenders = {
            kind: partial(_measure, kind, name, arguments.seconds) for kind in ("bare", "ours")
        }
        readings = take_turns(contenders, arguments.repetitions)
        rates = [column(readings[kind], "updates_per_s") for kind in ("ours", "bare")]
        line = {"to_bare": ratios(*rates)}
        line |= {kind: summary(results)["updates_per_s"] for kind, results in readings.items()}
        emit("updates", name, line)


if __name__ == "__main__":
    main()
