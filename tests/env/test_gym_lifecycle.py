"""Environments: construction, errors raised by `step`, and windows."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

from border_cli.env.config import GymConfig
from border_cli.env.gym import GymEnvFactory
from border_cli.env.gym_env import GymEnv

COUNTING = "border/Counting-v1"


def make(**settings: Any) -> GymEnv:
    return GymEnvFactory(GymConfig(**({"id": COUNTING} | settings))).make(training=True)


def test_an_error_of_a_step_comes_through_as_it_is():
    env = make(kwargs={"raise_at": 2})
    env.reset(0)
    env.step(np.array([0]))
    with pytest.raises(OSError, match=r"^the simulator fell over$"):
        env.step(np.array([0]))


def test_each_environment_that_is_constructed_is_a_sign_of_life(counting):
    counts: list[int] = []
    factory = GymEnvFactory(GymConfig(id=COUNTING, num_envs=3))
    factory.make(training=False, beat=lambda: counts.append(len(counting.made)))
    assert counts == [1, 2, 3]


def test_two_threads_never_construct_at_the_same_time(meeting):
    meeting.barrier = threading.Barrier(2)
    threads = [threading.Thread(target=make, kwargs={"id": "border/Meeting-v1"}) for _ in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(5)
    assert meeting.met == [False, False]


def test_only_the_first_environment_opens_a_window(counting):
    env = GymEnvFactory(GymConfig(id=COUNTING, num_envs=2)).make(training=False, render="human")
    assert [instance.render_mode for instance in counting.made] == ["human", None]
    env.close()
