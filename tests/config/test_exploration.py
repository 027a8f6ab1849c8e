"""`actor_manager.exploration`: separate exploration settings for every actor."""

from __future__ import annotations

from typing import Any

import pytest

from border_cli.config.compose import compose
from border_cli.errors import ConfigError

TWO = ("~tuned", "env=cartpole", "actor_manager.num_actors=2")


def test_settings_that_an_actor_lacks_are_the_defaults_and_not_those_of_the_agent() -> None:
    override = "actor_manager.exploration=[null,{exploration: softmax}]"
    actors = compose("agent=dqn", "agent.epsilon=0.3", override, *TWO).actor_manager
    assert actors.exploration_of(0) is None
    assert actors.exploration_of(1) == {
        "exploration": "softmax",
        "epsilon": {"initial": 1.0, "final": 0.05, "kind": "linear", "steps": 10_000},
        "temperature": 1.0,
    }


@pytest.mark.parametrize(
    ("own", "epsilon"),
    [
        ("{final: 0.2}", {"initial": 1.0, "final": 0.2, "kind": "linear", "steps": 10_000}),
        # the schedule ends with the run
        ("{initial: 1, final: 0}", {"initial": 1.0, "final": 0, "kind": "linear", "steps": 900}),
    ],
)
def test_a_schedule_of_an_actor_changes_the_default_or_is_whole(own: str, epsilon: object) -> None:
    exploration = f"actor_manager.exploration=[null,{{epsilon: {own}}}]"
    typed = ("agent=dqn", "agent.epsilon.steps=7", "trainer.max_env_steps=900")
    actors = compose(*typed, exploration, *TWO).actor_manager
    settings: Any = actors.exploration_of(1)
    assert settings["epsilon"] == epsilon


def test_a_schedule_of_an_actor_replaces_that_of_the_agent_and_ends_with_the_run() -> None:
    agents = "agent.noise_std={initial: 1, final: 0.5, kind: cosine, steps: 7}"
    override = "actor_manager.exploration=[{noise_std: {initial: 1, final: 0.1}},0.2]"
    limit = "trainer.max_env_steps=900"
    config = compose("agent=td3", agents, override, limit, *TWO, "env=pendulum")
    assert config.actor_manager.exploration_of(0) == {
        "noise": "gaussian",
        "noise_std": {"initial": 1.0, "final": 0.1, "kind": "linear", "steps": 900},
    }


def test_an_empty_mapping_has_the_defaults_or_is_null_if_there_are_none() -> None:
    override = "actor_manager.exploration=[{},0.5]"
    assert compose("agent=sac", override, *TWO).actor_manager.exploration_of(0) is None
    td3 = compose("agent=td3", override, *TWO).actor_manager.exploration_of(0)
    assert td3 == {"noise": "gaussian", "noise_std": 0.1}


@pytest.mark.parametrize(
    ("agent", "own", "problem"),
    [
        ("dqn", "{temperature: 0.5}", r"agent\.temperature needs agent\.exploration=softmax"),
        ("dqn", "{exploration: greedy}", r"agent\.exploration does not explore"),
        ("dqn", "{exploration: softmx}", r"Invalid value 'softmx'.*full_key: exploration"),
        ("dqn", "{epsilon: {fnal: 0}}", r"unknown agent\.epsilon key 'fnal', did you mean final"),
        ("dqn", "{epsilon: 2}", r"agent\.epsilon must be at least 0 and at most 1"),
        ("dqn", "{gamma: 0.5}", r"unknown exploration setting 'gamma' \(choose from exploration,"),
        ("bc", "{epsilon: 0.1}", r"unknown exploration setting 'epsilon' \(there are none\)"),
    ],
)
def test_settings_that_do_not_fit_the_agent_are_refused_with_the_actor(
    agent: str, own: str, problem: str
) -> None:
    message = rf"actor_manager\.exploration of actor 1: {problem}"
    with pytest.raises(ConfigError, match=message):
        compose(f"agent={agent}", f"actor_manager.exploration=[null,{own}]", *TWO)
