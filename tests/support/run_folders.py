"""Run directories as border-train leaves them, written without training."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

SETTINGS = {"agent": "dqn", "agent.double": True, "agent.gamma": 0.99, "env": "cartpole"}


def write_run(
    folder: Path,
    returns: Sequence[float],
    *,
    seed: int = 0,
    settings: Mapping[str, Any] | None = None,
    every: int = 100,  # env steps between two evaluations, and twice the updates
    **facts: Any,
) -> Path:
    """An evaluation for each of `returns`; `facts` go to run.json."""
    (folder / "checkpoints").mkdir(parents=True)
    known = {"env.id": "CartPole-v1", **SETTINGS, "seed": seed, **(settings or {})}
    record = {"status": "done", "exit_reason": "max_opt_steps reached", "settings": known, **facts}
    (folder / "run.json").write_text(json.dumps(record))
    rows = [
        {
            "opt_steps": number * every // 2,
            "env_steps": number * every,
            "time_s": number / 4,
            "eval/return": value,
        }
        for number, value in enumerate(returns, start=1)
    ]
    text = "".join(f"{json.dumps(row)}\n" for row in rows)
    (folder / "metrics.jsonl").write_text(text)
    return folder


def two_groups(root: Path, **settings: Any) -> Path:
    """Three seeds with `agent.double` and three without; each value worked by hand is in tests."""
    for double, lasts in ((True, (10.0, 20.0, 30.0)), (False, (5.0, 15.0, 25.0))):
        for seed, last in enumerate(lasts):
            folder = root / f"double-{double}_{seed}"
            changed = {"agent.double": double, **settings}
            write_run(folder, [0.0, last / 2, last], seed=seed, settings=changed)
    return root
