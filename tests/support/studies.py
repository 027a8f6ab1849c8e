"""Small studies and trials, as in study.json and trials.json, without any runs."""

from __future__ import annotations

from typing import Any

from border_cli.tune.trials import Study, TrialRow


def a_study(**changes: Any) -> Study:
    """Returns a study of 10 trials, 2 seeds, budgets of 100 and 500 env steps (10,000 in all)."""
    facts: dict[str, Any] = {
        "id": "1f",
        "name": "my_study",
        "command": ["border-tune", "agent=dqn", "env=acrobot"],
        "agent": "dqn",
        "env": "acrobot",
        "overrides": ["agent=dqn", "env=acrobot"],
        "space": {
            "agent.gamma": {"low": 0.9, "high": 0.99},
            "agent.tau": {"low": 0.1, "high": 0.9},
        },
        "seeds": 2,
        "score": "last",
        "last_evals": 5,
        "unit": "max_env_steps",
        "interval": 50,
        "budgets": [100, 500],
        "trials": 10,
        "fresh_seeds": 3,
    }
    return Study(**facts | changes)


def a_row(number: int, *scores: float, **changes: Any) -> TrialRow:
    """Returns a complete trial, or a running one if no scores are given."""
    facts: dict[str, Any] = {
        "number": number,
        "status": "complete" if scores else "running",
        "budget": 500 if scores else 0,
        "scores": [*scores],
        "ended": f"2026-01-01 00:00:{number:02d}" if scores else "",
        "reason": "",
        "params": {},
        "settings": [],
        "command": "border-train agent=dqn env=acrobot",
    }
    return TrialRow(**facts | changes)
