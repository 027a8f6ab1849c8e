"""Settings that are ported from other programs, compared value by value."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from border_cli.config.compose import Composer
from border_cli.registry import TRAINERS

GROUPS = (
    *("agent", "env", "step_processor", "replay_buffer", "actor_manager", "trainer", "evaluator"),
)


def differing(
    overrides: list[str], trainer: str, expected: dict[str, Any]
) -> dict[str, tuple[Any, Any]]:
    """The settings of a command that are neither as expected nor, where nothing is expected, the
    defaults of their groups: {path: (value, what was expected)}. Tuned files must not count."""
    job = Composer().job(overrides)
    assert [source for source in job.sources if source.group == "tuned"] == []
    config = job.config
    assert type(config.trainer) is TRAINERS.entry(trainer).config_type
    found: dict[str, Any] = {}
    defaults: dict[str, Any] = {}
    for group in GROUPS:
        settings = getattr(config, group)
        found |= {f"{group}.{key}": value for key, value in asdict(settings).items()}
        plain = asdict(type(settings)())
        defaults |= {f"{group}.{key}": value for key, value in plain.items()}
    unknown = expected.keys() - found.keys()
    assert not unknown
    wanted = defaults | expected
    return {
        path: (value, wanted[path])
        for path, value in found.items()
        if value != wanted[path] and not path.endswith(".option")
    }
