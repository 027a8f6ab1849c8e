"""The modules that evaluations need on the cluster of the actors."""

from __future__ import annotations

from border_cli import compose
from border_cli.core.timing import MonotonicClock
from border_cli.launch.build import build_actors, build_agent, env_factory
from border_cli.launch.effective import effective_settings


def test_actors_bring_the_modules_of_evaluations_to_their_cluster() -> None:
    wrapper = "evaluator.env.wrappers=[my_wrappers:Slow]"
    effective = effective_settings(compose("agent=dqn", "env=cartpole", wrapper))
    factory = env_factory(effective)
    agent = build_agent(effective, factory.spec)
    actors = build_actors(effective, agent, factory, MonotonicClock())
    assert "my_wrappers" in actors._make_actor.modules  # type: ignore[attr-defined]
