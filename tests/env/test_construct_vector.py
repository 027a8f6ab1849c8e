"""The choice between an environment's own vector implementation and single environments."""

from __future__ import annotations

import re
from typing import Any

import pytest

from border_cli.env.config import GymConfig
from border_cli.env.gym import GymEnvFactory
from border_cli.env.gym_env import GymEnv
from border_cli.env.vector import GymVectorEnv

DEFAULTS = {"id": "border/Endless-v1", "num_envs": 2}


def kind(training: bool = True, **settings: Any) -> type:
    return type(GymEnvFactory(GymConfig(**(DEFAULTS | settings))).make(training=training))


def reason(caplog: Any, **settings: Any) -> str:
    """Returns the logged reason for using single environments."""
    with caplog.at_level("DEBUG", logger="border_cli.env"):
        assert kind(**settings) is GymEnv
    return str(caplog.messages[-1])


def test_only_several_training_environments_use_the_vector_implementation():
    assert kind() is GymVectorEnv
    assert kind(num_envs=1) is GymEnv
    assert kind(training=False) is GymEnv
    assert kind(vectorization="sync") is GymEnv
    assert kind(id="CartPole-v1") is GymVectorEnv
    assert kind(id="Acrobot-v1") is GymEnv


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"id": "border/Silent-v1"}, r"its autoreset mode is None, not AutoresetMode.NEXT_STEP"),
        ({"id": "border/Climb-v1", "kwargs": {"mode": "SameStep"}}, r"is AutoresetMode.SAME_STEP"),
        ({"id": "border/Wider-v1"}, "its spaces .BoxSpace.* differ from a single environment's"),
        (
            {"id": "border/Unlimited-v1", "max_episode_steps": 5},
            "cannot be constructed: .* 'max_episode_steps'",
        ),
        ({"id": "border/Bounded-v1"}, "truncates episodes, unlike a single environment"),
        ({"id": "border/Unlimited-v1", "kwargs": {"only_single": 1}}, "cannot be .* 'only_single'"),
        ({"wrappers": ["FlattenObservation"]}, "wrappers apply to single environments only"),
        ({"id": "Acrobot-v1"}, "there is none"),
    ],
)
def test_a_vector_implementation_that_would_behave_differently_is_not_used(caplog, settings, why):
    assert re.search(why, reason(caplog, **settings))
