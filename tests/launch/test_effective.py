"""Effective settings, derived from several config groups."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
import torch

from border_cli import compose
from border_cli.core.interfaces import Env
from border_cli.core.spaces import BoxSpace, DiscreteSpace, EnvSpec
from border_cli.env.gym_env import GymEnv
from border_cli.env.vector import GymVectorEnv
from border_cli.errors import ConfigError
from border_cli.launch.build import build_agent, env_factory
from border_cli.launch.effective import EffectiveSettings, effective_settings
from border_cli.launch.header import actors_line, schedule_lines
from tests.support.case_sampling import sampled

SMALL = ("agent=dqn", "env=cartpole", "~tuned")


@cache  # the settings are immutable
def settings(*overrides: str) -> EffectiveSettings:
    return effective_settings(compose(*SMALL, *overrides))


@pytest.mark.parametrize(
    ("typed", "kwargs"),
    [
        ((), {"shaping": "dense", "obstacles": 5}),
        (("evaluator.env.kwargs.shaping=sparse",), {"shaping": "sparse", "obstacles": 5}),
        (("evaluator.env={kwargs: {shaping: sparse}}",), {"shaping": "sparse", "obstacles": 5}),
        (("evaluator.env.kwargs.obstacles=null",), {"shaping": "dense", "obstacles": None}),
        (("evaluator.env.kwargs.obstacles=default",), {"shaping": "dense"}),
        (("evaluator.env.id=Other-v0",), {"shaping": "dense", "obstacles": 5}),
    ],
)
def test_evaluations_have_the_arguments_of_training_but_for_those_that_are_replaced(
    typed: tuple[str, ...], kwargs: dict[str, object]
) -> None:
    effective = settings("env.kwargs={shaping: dense, obstacles: 5}", *typed)
    assert vars(effective.evaluation_env)["kwargs"] == kwargs
    assert vars(effective.env)["kwargs"] == {"shaping": "dense", "obstacles": 5}


@pytest.mark.parametrize(
    ("typed", "lines"),
    [
        ((), "agent.epsilon linear from 1 to 0.05 over 10,000 env steps"),
        (("agent.exploration=softmax",), ""),
        (("trainer=offline",), ""),  # no actor explores
        (("agent.epsilon=0.1",), ""),
        (
            (
                *("agent.epsilon=0.1", "replay_buffer=prioritized"),
                *("replay_buffer.beta.steps=null", "trainer.max_time_s=60"),
            ),
            "replay_buffer.beta linear from 0.4 to 1 over the run",
        ),
    ],
)
def test_the_header_lists_the_schedules_that_something_follows(
    typed: tuple[str, ...], lines: str
) -> None:
    offline = ("replay_buffer=dataset", "replay_buffer.dataset=a/b-v0") * (
        "trainer=offline" in typed
    )
    header_lines = schedule_lines(settings(*typed, *offline))
    assert header_lines == ([("schedules", lines)] if lines else [])


@pytest.mark.parametrize(
    ("overrides", "backend", "num_actors", "n_buffer", "in_learner_thread"),
    [
        ((), "thread", 2, 20, False),
        (("actor_manager=process", "actor_manager.num_actors=5"), "process", 5, 20, False),
        (("actor_manager=serial", "actor_manager.n_buffer=7"), "serial", 2, 7, True),
        (("trainer=sync",), "serial", 2, 1, True),
        (("trainer=sync", "actor_manager=serial"), "serial", 2, 1, True),
        (("trainer=sync", "actor_manager=thread"), "thread", 2, 1, False),
        (("trainer=sync", "actor_manager=ray"), "ray", 2, 1, False),
        (("trainer=offline",), "serial", 0, 1, True),
    ],
)
def test_the_trainer_and_the_actor_manager_decide_together_who_steps(
    overrides: tuple[str, ...],
    backend: str,
    num_actors: int,
    n_buffer: int,
    in_learner_thread: bool,
) -> None:
    effective = settings(*overrides)
    assert (effective.backend, effective.num_actors) == (backend, num_actors)
    assert effective.actors.n_buffer == n_buffer
    assert effective.actors.in_learner_thread == in_learner_thread


@pytest.mark.parametrize(
    ("overrides", "background"),
    sampled(
        [
            ((), True),
            (("actor_manager=process",), True),
            (("actor_manager=serial",), False),
            (("trainer=sync",), False),
            (("trainer=sync", "actor_manager=process"), True),
            (("trainer=offline",), False),
        ],
        every=2,
    ),
)
def test_actors_in_the_learner_s_thread_let_no_evaluation_run_beside_it(
    overrides: tuple[str, ...], background: bool
) -> None:
    effective = settings("evaluator.background=true", *overrides)
    assert effective.evaluates_in_background(images_of(84)) == background
    assert not settings("evaluator.background=false", *overrides).evaluates_in_background(
        images_of(84)
    )
    assert not settings(*overrides).evaluates_in_background(images_of(10))


@pytest.mark.parametrize(
    ("overrides", "background"),
    [(("trainer=sync", "actor_manager=process"), False), (("actor_manager=process",), True)],
)
def test_only_on_request_does_a_bit_reproducible_run_evaluate_in_the_background(
    overrides: tuple[str, ...], background: bool
) -> None:
    assert settings(*overrides).evaluates_in_background(images_of(84)) == background


@pytest.mark.parametrize(
    ("manager", "line"),
    [
        ("serial", "serial, in turn in the learner's thread; bit-reproducible on a CPU"),
        ("process", "process, in lockstep with the learner; bit-reproducible on a CPU"),
        ("ray", "ray, in lockstep with the learner; not bit-reproducible"),
    ],
)
def test_the_header_says_what_a_synchronous_run_promises(manager: str, line: str) -> None:
    effective = settings("trainer=sync", f"actor_manager={manager}", "env.num_envs=3")
    assert actors_line(effective) == f"2 x 3 env, {line}"


def images_of(side: int) -> EnvSpec:
    pixels = BoxSpace((4, side, side), "uint8", np.uint8(0), np.uint8(255))
    return EnvSpec(id="A-v0", observation=pixels, action=DiscreteSpace(3), max_episode_steps=None)


def test_the_evaluation_has_an_environment_for_each_episode() -> None:
    effective = settings(
        "evaluator.env={max_episode_steps: 7}", "env.num_envs=4", "evaluator.num_episodes=3"
    )
    assert (effective.evaluation_env.num_envs, effective.evaluation_env.max_episode_steps) == (3, 7)
    assert effective.env.num_envs == 4
    assert effective.with_episodes(9).evaluation_env.num_envs == 9
    with pytest.raises(ConfigError, match="max_episode_steps must be at least 1"):
        _ = settings("evaluator.env={max_episode_steps: 0}").evaluation_env


@pytest.mark.parametrize(
    ("overrides", "threads"),
    [
        (("agent=sac", "env=pendulum", "agent.num_threads=null"), 1),
        (("agent=sac", "env=pendulum", "agent.num_threads=3"), 3),
        (("agent=random", "env=cartpole"), 1),
    ],
)
def test_an_update_has_one_thread_unless_more_are_asked_for(
    overrides: tuple[str, ...], threads: int
) -> None:
    effective = effective_settings(compose(*overrides))
    assert effective.torch_threads == threads
    with build_agent(effective, env_factory(effective).spec).learner_thread():
        assert torch.get_num_threads() == threads


@pytest.mark.parametrize(
    ("overrides", "env"),
    sampled(
        [
            (("trainer=sync",), GymEnv),
            (("trainer=sync", "actor_manager=process"), GymEnv),
            (("actor_manager=serial",), GymEnv),
            (("actor_manager=thread",), GymVectorEnv),
            (("actor_manager=process",), GymVectorEnv),
            (("actor_manager=thread", "env.vectorization=sync"), GymEnv),
        ],
        every=3,
    ),
)
def test_environments_are_stepped_one_by_one_where_runs_are_bit_reproducible(
    overrides: tuple[str, ...], env: type[Env]
) -> None:
    effective = settings("env.num_envs=2", *overrides)
    training_env = env_factory(effective).make(training=True)
    assert type(training_env) is env
    training_env.close()


def test_only_an_argument_of_the_evaluation_can_be_left_to_the_constructor() -> None:
    effective = settings("env.kwargs={a: default, b: 1}", "evaluator.env.kwargs={b: default, c: 2}")
    assert effective.evaluation_env.kwargs == {"a": "default", "c": 2}
