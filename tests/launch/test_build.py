"""Building parts of a run from its settings."""

from __future__ import annotations

import pytest

from border_cli import compose
from border_cli.errors import ConfigError
from border_cli.launch.build import hyperparameters

SMALL = ("agent=dqn", "env=cartpole", "~tuned")


@pytest.mark.parametrize("agent", ["bc", "random"])
def test_prioritized_replay_is_refused_for_an_agent_without_errors(agent: str) -> None:
    assert compose("agent=iql", "env=cartpole", "replay_buffer=prioritized")
    match = rf"the agent \({agent}\) has no TD errors to prioritize transitions by"
    with pytest.raises(ConfigError, match=match):
        compose(f"agent={agent}", "env=cartpole", "replay_buffer=prioritized")


def test_settings_that_compare_runs_are_flat_and_named_as_they_are_typed() -> None:
    flat = hyperparameters(compose(*SMALL, "seed=7", "agent.hidden=[8,4]", "run_dir=x"))
    assert (flat["agent"], flat["agent.hidden"], flat["seed"]) == ("dqn", "[8, 4]", 7)
    assert flat["env.max_episode_steps"] == "null"
    groups = {name.partition(".")[0] for name in flat}
    assert groups.isdisjoint({"run_dir", "name", "recorder", "checkpoint", "quiet"})
    assert all(isinstance(value, bool | int | float | str) for value in flat.values())
