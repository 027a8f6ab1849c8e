"""Run directories with evaluations written by hand, single and in groups of seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.support.written_runs import write_run


def evaluated_run(
    folder: Path,
    returns: Sequence[float],
    *,
    seed: int = 0,
    settings: Mapping[str, Any] | None = None,
    every: int = 100,  # env steps between evaluations, with half as many updates
    **facts: Any,
) -> Path:
    """Writes a run directory with one evaluation per return; `facts` go to run.json."""
    rows = [
        {
            "opt_steps": number * every // 2 or number,
            "env_steps": number * every,
            "time_s": number / 4,
            "eval/return": value,
        }
        for number, value in enumerate(returns, start=1)
    ]
    return write_run(folder, {**(settings or {}), "seed": seed}, metrics=rows, **facts)


def two_groups(root: Path, **settings: Any) -> Path:
    """Writes three seeds with `agent.double` that end at 10, 20, 30, and three without, 5 lower."""
    for double, lasts in ((True, (10.0, 20.0, 30.0)), (False, (5.0, 15.0, 25.0))):
        for seed, last in enumerate(lasts):
            folder = root / f"double-{double}_{seed}"
            changed = {"agent.double": double, **settings}
            evaluated_run(folder, [0.0, last / 2, last], seed=seed, settings=changed)
    return root
