"""Run directories written by hand: the files of a CartPole run."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

FACTS = {
    "status": "done",
    "exit_reason": "max_opt_steps reached",
    "pid": 1,
    "host": "here",
    "started": "2026-01-01T10:00:00+0000",
    "ended": "2026-01-01T10:01:00+0000",
    "best_score": 200.0,
    "best_opt_steps": 300,
    "final_score": 150.0,
    "opt_steps": 400,
    "env_steps": 800,
    "duration_s": 60.0,
    "attempts": [{"from_opt_steps": 0}],
}
SETTINGS = {
    "agent": "dqn",
    "env": "cartpole",
    "seed": 0,
    "agent.gamma": 0.99,
    "agent.double": True,
    "agent.hidden": [64, 64],
    "env.id": "CartPole-v1",
    "trainer.max_time_s": None,
    "checkpoint.milestone_interval": 0,
}


def write_run(
    folder: Path,
    settings: Mapping[str, Any] | None = None,
    *,
    metrics: Sequence[Mapping[str, Any]] = (),
    **facts: Any,
) -> Path:
    """Writes a run directory; `settings` and `facts` update `SETTINGS` and `FACTS`."""
    hydra = folder / ".hydra"
    hydra.mkdir(parents=True)
    (hydra / "resolved.yaml").write_text("seed: 0\n", encoding="utf-8")
    content = {**FACTS, **facts, "settings": {**SETTINGS, **(settings or {})}}
    (folder / "run.json").write_text(json.dumps(content), encoding="utf-8")
    lines = "".join(json.dumps(row) + "\n" for row in metrics)
    (folder / "metrics.jsonl").write_text(lines, encoding="utf-8")
    return folder


def without_end(**facts: Any) -> dict[str, Any]:
    """Returns the facts of a run whose process has not recorded its end."""
    unfinished = {"status": "running", "ended": None, "best_score": None, "final_score": None}
    return {**unfinished, "exit_reason": None, **facts}
