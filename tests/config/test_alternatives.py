"""What can be said in two ways is taken from the nearer place, and refused where one says both; and
schedules as Hydra's users type them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sampling import sampled

from border_cli.config.compose import Composer, compose
from border_cli.config.search_path import user_folders
from border_cli.config.sweep import jobs_of, sweep_terms
from border_cli.errors import ConfigError

Write = Callable[[str, str], Path]
CARTPOLE = ("agent=dqn", "env=cartpole")  # its tuned file sets epsilon_steps and eval_interval
LINEAR = {"initial": 1.0, "final": 0.1, "kind": "linear", "steps": None}


@pytest.mark.parametrize(
    ("typed", "found"),
    [
        ("agent.epsilon=0.3", (0.3, 10_000)),
        ("agent.epsilon={initial: 1, final: 0.1}", (LINEAR, 10_000)),
        ("agent.epsilon_final=0.2", (None, 5_000)),
        ("agent.epsilon=null", (None, 5_000)),
    ],
)
def test_what_is_typed_replaces_what_a_tuned_file_says_in_the_other_way(
    typed: str, found: tuple[Any, int]
) -> None:
    agent: Any = compose(*CARTPOLE, typed).agent
    assert (agent.epsilon, agent.epsilon_steps) == found


def test_a_file_replaces_what_those_before_it_say_in_the_other_way(
    folder: Path, write: Write
) -> None:
    write(
        "experiment/rare.yaml",
        "# @package _global_\ntrainer: {eval_interval_env_steps: 700}\nagent: {epsilon: 0.2}\n",
    )
    config = compose(*CARTPOLE, "experiment=rare", config_dir=str(folder))
    agent: Any = config.agent
    assert (config.trainer.eval_interval_env_steps, config.trainer.eval_interval) == (700, 1_000)
    assert (agent.epsilon, agent.epsilon_steps) == (0.2, 10_000)
    typed = (*CARTPOLE, "experiment=rare", "trainer.eval_interval=30", "agent.epsilon_steps=7")
    config = compose(*typed, config_dir=str(folder))
    agent = config.agent
    assert (config.trainer.eval_interval_env_steps, config.trainer.eval_interval) == (None, 30)
    assert (agent.epsilon, agent.epsilon_steps, agent.epsilon_final) == (None, 7, 0.05)


@pytest.mark.parametrize(
    ("typed", "said"),
    sampled(
        [
            (["agent.epsilon=0.1", "agent.epsilon_steps=5"], r"^agent\.epsilon_steps cannot be"),
            (
                ["trainer.save_interval=5", "trainer.save_interval_env_steps=5"],
                r"^trainer\.save_interval cannot be set together with",
            ),
            (["agent.epsilon.final=0"], r"^agent\.epsilon\.initial must be a number"),
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


def test_schedules_and_what_they_replace_can_be_swept() -> None:
    composer = Composer(user_folders())
    rate = "agent.learning_rate={initial: 1, final: 0},{initial: 1, final: 0.5}"
    terms = sweep_terms(composer, [*CARTPOLE, rate, "agent.epsilon=0.1,0.2"])
    assert terms.jobs is not None
    agents: list[Any] = [job.config.agent for job in jobs_of(composer, terms.jobs, terms)]
    assert [each.learning_rate["final"] for each in agents] == [0, 0, 0.5, 0.5]
    assert [each.epsilon for each in agents] == [0.1, 0.2, 0.1, 0.2]
    assert {each.epsilon_steps for each in agents} == {10_000}
