"""The help text for the settings of the chosen components."""

from __future__ import annotations

from border_cli.config.compose import Composer
from border_cli.config.describe import settings_help


def shown(*overrides: str) -> str:
    return settings_help(Composer().job(list(overrides)), overrides)


def test_a_setting_has_value_default_range_and_meaning() -> None:
    text = shown("agent=dqn", "agent.gamma=0.5")
    assert "agent=dqn  Deep Q-network" in text
    assert "  agent.gamma=0.5  (default 0.99)\n" in text
    assert "discount per env step [at least 0 and at most 1]" in text
    assert "  agent.loss=huber\n" in text
    assert "[one of huber, mse]" in text
    assert "env" not in {line.partition("=")[0] for line in text.splitlines()}


def titles(text: str) -> list[str]:
    return [line.split()[0] for line in text.splitlines() if line and not line.startswith(" ")]


def test_the_typed_groups_are_shown_or_else_all_groups() -> None:
    assert titles(shown("recorder=jsonl", "env=cartpole")) == ["env=cartpole", "recorder.jsonl"]
    everything = titles(shown("seed=1"))
    assert {"agent=dqn", "env=gym", "trainer=async", "checkpoint"} < set(everything)


def test_a_preset_is_shown_with_its_values() -> None:
    assert "  env.id=CartPole-v1  (default null)" in shown("env=cartpole")
