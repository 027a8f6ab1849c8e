"""Settings of `actor_manager=ray`: rejected values, `auto`, and synchronous runs."""

from __future__ import annotations

from typing import Any

import pytest

from border_cli import compose
from border_cli.actor_manager.config import ThreadConfig
from border_cli.errors import ConfigError
from border_cli.launch.effective import effective_settings
from border_cli.ray.config import RayConfig


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_actors": 1.5}, r"num_actors must be a whole number of at least 1, or auto, got 1.5"),
        (
            {"num_actors": "all"},
            r"num_actors must be a whole number of at least 1, or auto, got 'all'",
        ),
        ({"resources": {"CPU": -1.0}}, r"resources must have numbers of at least 0 \(CPU\)"),
        ({"exploration": [0.1], "num_actors": "auto"}, r"a list of 64 entries"),
    ],
)
def test_an_invalid_setting_is_refused_with_the_allowed_values(
    settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=rf"actor_manager\..*{message}"):
        RayConfig(**settings)


@pytest.mark.parametrize("value", ["auto", 1.5, True])
def test_actors_of_one_machine_are_counted(value: object) -> None:
    with pytest.raises(ConfigError, match=f"must be a whole number of at least 1, got {value!r}"):
        ThreadConfig(num_actors=value)


def test_auto_counts_as_the_most_actors_that_there_may_be() -> None:
    settings = ["actor_manager=ray", "actor_manager.num_actors=auto", "actor_manager.max_actors=9"]
    effective = effective_settings(compose("agent=dqn", "env=cartpole", *settings))
    assert effective.num_actors == 9
    assert effective.slack == 2 * 9 * 20
