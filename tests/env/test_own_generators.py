"""Environments that draw from the global generators of Python and NumPy."""

from __future__ import annotations

import random
import threading
from contextlib import closing, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from global_draws import GUESS

from border_cli import compose
from border_cli.checks.dry_build import dry_build_jobs
from border_cli.config.job import Job
from border_cli.core.interfaces import Env
from border_cli.env.config import GymConfig
from border_cli.env.gym import GymEnvFactory
from border_cli.env.own_generators import OwnGenerators, global_states
from border_cli.launch.trial import convert_errors, try_factory


def uses_global_generators(**settings: Any) -> bool:
    factory = GymEnvFactory(GymConfig(**settings))
    spec = try_factory(factory, partial(convert_errors, "the environment"), plays=True)
    assert factory.config.own_generators is (True if spec.own_generators else None)
    return spec.own_generators


@pytest.mark.parametrize("seeds", [False, True])
def test_draws_from_the_global_generators_are_found_as_the_environment_is_tried(
    seeds: bool,
) -> None:
    assert uses_global_generators(id=GUESS, kwargs={"seeds": seeds})
    assert not uses_global_generators(id="CartPole-v1")


def test_what_is_found_becomes_a_setting_of_the_run() -> None:
    config = compose("agent=dqn", f"env.id={GUESS}", "trainer.max_opt_steps=1")
    (job,) = dry_build_jobs([Job(folder=Path("run"), config=config)]).jobs
    assert job.config.env == GymConfig(id=GUESS, own_generators=True)


class Unseeded(gym.Env[Any, Any]):
    """Draws from its own generator and ignores the seed."""

    observation_space = gym.spaces.Box(0, 1, (1,), np.float64)
    action_space = gym.spaces.Discrete(2)

    def __init__(self) -> None:
        self._rng = np.random.default_rng()

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        del seed, options
        return self._rng.random(1), {}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        del action
        return self._rng.random(1), 0.0, False, False, {}


def test_an_environment_that_ignores_its_seed_is_reported(
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert not uses_global_generators(id=f"{__name__}:Unseeded")
    (message,) = caplog.messages
    assert "runs and evaluations do not repeat" in message


def env_of(num_envs: int = 1) -> Env:
    config = GymConfig(id=GUESS, num_envs=num_envs, own_generators=True)
    return GymEnvFactory(config).make(training=True)


def play(env: Env, steps: int) -> bytes:
    actions = np.zeros(env.num_envs, np.int64)
    return b"".join(np.asarray(env.step(actions).act_obs).tobytes() for _ in range(steps))


def test_environments_neither_disturb_each_other_nor_what_is_outside() -> None:
    with closing(env_of()) as alone:
        alone.reset(1)
        expected = play(alone, 40)
    with closing(env_of()) as one, closing(env_of(3)) as others:
        before = global_states()
        one.reset(1)
        others.reset(2)
        pieces = []
        for _ in range(4):
            pieces.append(play(one, 10))
            play(others, 7)
        after = global_states()
    assert b"".join(pieces) == expected
    assert before[0] == after[0]
    assert before[1][1].tobytes() == after[1][1].tobytes()


def test_a_running_episode_is_continued_exactly_wherever_the_global_generators_are() -> None:
    with closing(env_of(2)) as whole, closing(env_of(2)) as resumed:
        whole.reset(5)
        play(whole, 13)
        state = whole.state_dict()
        random.random()
        np.random.random()
        _, restarted = resumed.resume(5, state)
        assert restarted == []
        assert play(resumed, 20) == play(whole, 20)


def test_threads_that_step_at_once_do_not_wait_for_each_other() -> None:
    inside, release = threading.Event(), threading.Event()

    class Waits(gym.Env[Any, Any]):
        def step(self, action: Any) -> Any:
            inside.set()
            assert release.wait(10)
            return action, 0.0, False, False, {}

    class Returns(gym.Env[Any, Any]):
        def step(self, action: Any) -> Any:
            return action, 0.0, False, False, {}

    before = global_states()
    thread = threading.Thread(target=OwnGenerators(Waits()).step, args=(1,))
    thread.start()
    assert inside.wait(10)
    assert OwnGenerators(Returns()).step(2)[0] == 2
    release.set()
    thread.join(10)
    assert global_states()[0] == before[0]


class Dice(gym.Env[Any, Any]):
    """Has masks, and draws in `step` only."""

    observation_space = gym.spaces.Box(0, 1, (1,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def reset(self, **_: Any) -> Any:
        return np.zeros(1, np.float32), {"action_mask": np.ones(2, np.int8)}

    def step(self, action: int) -> Any:
        del action
        info = {"action_mask": np.ones(2, np.int8)}
        return np.random.rand(1).astype(np.float32), 0.0, False, False, info


def test_draws_of_an_environment_with_masks_are_found() -> None:
    factory = GymEnvFactory(GymConfig(id=f"{__name__}:Dice"))
    spec = try_factory(factory, lambda _: nullcontext(), plays=True)
    assert spec.own_generators
    assert (factory.config.own_generators, factory.config.action_mask) == (True, True)
