"""Value-by-value comparison of settings ported from other programs."""

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
    """Returns the settings of a command that differ: {path: (value, expected value)}.

    A setting that is not in `expected` must have its default. Tuned files must not apply.
    """
    job = Composer().job(overrides)
    assert [source for source in job.sources if source.group == "tuned"] == []
    config = job.config
    assert type(config.trainer) is TRAINERS.entry(trainer).config_type
    values: dict[str, Any] = {}
    defaults: dict[str, Any] = {}
    for group in GROUPS:
        settings = getattr(config, group)
        values |= {f"{group}.{key}": value for key, value in asdict(settings).items()}
        plain = asdict(type(settings)())
        defaults |= {f"{group}.{key}": value for key, value in plain.items()}
    unknown_paths = expected.keys() - values.keys()
    assert not unknown_paths
    wanted = defaults | expected
    return {
        path: (value, wanted[path])
        for path, value in values.items()
        if value != wanted[path] and not path.endswith(".option")
    }
