"""Intervals in updates or in env steps (the last one set applies), and schedules in overrides."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from border_cli.config.compose import Composer, compose
from border_cli.config.search_path import user_folders
from border_cli.config.sweep import jobs_of, sweep_terms
from border_cli.errors import ConfigError
from tests.support.case_sampling import sampled

Write = Callable[[str, str], Path]
CARTPOLE = ("agent=dqn", "env=cartpole")  # its tuned file sets epsilon.steps and eval_interval
RARE = "# @package _global_\ntrainer: {eval_interval_env_steps: 700}\nagent: {epsilon: 0.2}\n"
TUNED = {"initial": 1.0, "final": 0.05, "kind": "linear", "steps": 5_000}
DEFAULT = TUNED | {"steps": 10_000}


@pytest.mark.parametrize(
    ("typed", "epsilon"),
    [
        ("agent.epsilon=0.3", 0.3),
        ("agent.epsilon.final=0.02", TUNED | {"final": 0.02}),
        ("~tuned agent.epsilon.final=0.02", DEFAULT | {"final": 0.02}),
        ("agent.epsilon={initial:0.5,final:0.1}", TUNED | {"initial": 0.5, "final": 0.1}),
        ("agent.epsilon.steps=1e5", TUNED | {"steps": 100_000}),
        # 500 warm-up samples, then two per update for 20,000 updates
        ("agent.epsilon.steps=null", TUNED | {"steps": 40_500}),
    ],
)
def test_a_number_replaces_a_schedule_and_keys_change_it(typed: str, epsilon: Any) -> None:
    config = compose(*CARTPOLE, *typed.split())
    assert config.trainer.with_steps(config.agent).epsilon == epsilon  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("typed", "epsilon"),
    [
        ([], 0.2),
        (["agent.epsilon.final=0"], DEFAULT | {"final": 0.0}),
        (["agent.epsilon={initial: 0.5, steps: 7}"], DEFAULT | {"initial": 0.5, "steps": 7}),
        (["agent.epsilon={initial: 1, final: 0.1}"], DEFAULT | {"final": 0.1, "steps": None}),
    ],
)
def test_a_schedule_above_a_number_is_whole_or_changes_the_default(
    typed: list[str], epsilon: Any, folder: Path, write: Write
) -> None:
    write("experiment/rare.yaml", RARE)
    config = compose(*CARTPOLE, "experiment=rare", *typed, config_dir=str(folder))
    assert config.agent.epsilon == epsilon  # type: ignore[attr-defined]


def test_a_file_replaces_what_those_before_it_say_in_the_other_way(
    folder: Path, write: Write
) -> None:
    write("experiment/rare.yaml", RARE)
    trainer = compose(*CARTPOLE, "experiment=rare", config_dir=str(folder)).trainer
    assert (trainer.eval_interval_env_steps, trainer.eval_interval) == (700, 1_000)
    typed = (*CARTPOLE, "experiment=rare", "trainer.eval_interval=30")
    trainer = compose(*typed, config_dir=str(folder)).trainer
    assert (trainer.eval_interval_env_steps, trainer.eval_interval) == (None, 30)


@pytest.mark.parametrize(
    ("typed", "said"),
    sampled(
        [
            (["agent.epsilon.fnal=0"], r"^unknown agent\.epsilon key 'fnal', did you mean final"),
            (
                ["trainer.save_interval=5", "trainer.save_interval_env_steps=5"],
                r"^trainer\.save_interval cannot be set together with",
            ),
            (
                ["agent.epsilon=null"],
                r"^agent\.epsilon must be a number or a schedule .*, got null",
            ),
            (
                ["agent.learning_rate={initial: 1, fnal: 0}"],
                r"^unknown agent\.learning_rate key 'fnal', did you mean final",
            ),
            (
                ["trainer=offline", "trainer.eval_interval_env_steps=5"],
                r"^trainer\.eval_interval_env_steps must be null with trainer=offline",
            ),
        ],
        every=2,
    ),
)
def test_what_cannot_be_meant_is_refused(typed: list[str], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        compose(*CARTPOLE, *typed)


def test_a_key_of_a_schedule_can_be_typed_alone() -> None:
    rate = "agent.learning_rate={initial: 1e-3, final: 0, steps: 9}"
    agent: Any = compose(*CARTPOLE, rate, "agent.learning_rate.kind=cosine").agent
    assert agent.learning_rate == {"initial": 1e-3, "final": 0, "kind": "cosine", "steps": 9}
    assert compose(*CARTPOLE, rate, "agent.learning_rate=0.5").agent.learning_rate == 0.5  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("typed", "epsilons"),
    [
        ("agent.epsilon=0.1,{final: 0.1}", [0.1, TUNED | {"final": 0.1}]),
        ("agent.epsilon.steps=1000,5000", [TUNED | {"steps": 1_000}, TUNED]),
    ],
)
def test_schedules_and_what_they_replace_can_be_swept(typed: str, epsilons: list[Any]) -> None:
    composer = Composer(user_folders())
    rate = "agent.learning_rate={initial: 1, final: 0},{initial: 1, final: 0.5}"
    terms = sweep_terms(composer, [*CARTPOLE, rate, typed])
    assert terms.jobs is not None
    agents: list[Any] = [job.config.agent for job in jobs_of(composer, terms.jobs, terms)]
    assert [agent.learning_rate["final"] for agent in agents] == [0, 0, 0.5, 0.5]
    assert [agent.epsilon for agent in agents] == [*epsilons, *epsilons]
