"""Environments passed to `train(env=…)` in Python."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from catch import Catch
from gymnasium.envs import registration

from border_cli import RunConfig, compose, load_policy, resume, train
from border_cli.config.saved import load_resolved
from border_cli.env.construct import GIVEN, find_spec
from border_cli.errors import ConfigError
from tests.support.case_sampling import sampled
from tests.support.commands import QUICK, eval_status

MANAGERS = ("trainer=sync", *(f"actor_manager={name}" for name in ("serial", "thread", "process")))
OBS = np.zeros((10, 10, 2), bool)

pytestmark = pytest.mark.usefixtures("folder")


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    yield
    forget()


def forget() -> None:
    """Unregisters all environments of callers, as if in a new process."""
    for env_id in [name for name in registration.registry if name.startswith(GIVEN)]:
        del registration.registry[env_id]


def small(*overrides: str) -> RunConfig:
    return compose(*QUICK, "agent=dqn", "run_dir=run", "recorder=none", *overrides)


def nested(side: int = 10) -> Callable[..., gym.Env[Any, Any]]:
    return lambda **kwargs: Catch(side=side, **kwargs)


def made(**kwargs: Any) -> gym.Env[Any, Any]:
    return gym.wrappers.TimeLimit(Catch(**kwargs), 5)


@pytest.mark.parametrize("manager", [pytest.param(MANAGERS[0]), *(
    pytest.param(backend, marks=pytest.mark.slow) for backend in MANAGERS[1:]
)])  # fmt: skip
def test_a_function_of_a_module_is_saved_by_its_name(manager: str) -> None:
    train(small(manager, "env.kwargs.dtype=uint8", "env.kwargs.high=255"), env=made)
    assert load_resolved(Path("run")).env.id == f"{__name__}:made"
    assert resume("run", "trainer.max_opt_steps=3").agent.opt_steps == 3
    assert load_policy("run").act(OBS.astype(np.uint8)) in (0, 1, 2)
    assert eval_status("run", "episodes=1") == 0


@pytest.mark.parametrize("manager", sampled(MANAGERS[:3], every=3))
def test_a_local_function_must_be_passed_again_to_resume(manager: str) -> None:
    result = train(small(manager), env=nested())
    forget()
    with pytest.raises(
        ConfigError, match=r"env\.id=python/lambda was passed .* resume\(…, env=…\)"
    ):
        resume("run", "trainer.max_opt_steps=3")
    action = load_policy("run").act(OBS)  # needs no environment
    assert action in (0, 1, 2)
    Path("run/env.json").unlink()
    with pytest.raises(ConfigError, match=r"or load_policy\(…, env=…\)"):
        load_policy("run")
    assert load_policy("run", env=nested()).act(OBS) == action
    forget()
    assert resume("run", "trainer.max_opt_steps=3", env=nested()).run_dir == result.run_dir
    assert Path("run/env.json").exists()


def test_a_class_is_taken_without_the_limit_that_it_is_registered_with() -> None:
    train(small("trainer=sync"), env=Catch)  # registered as Catch-v0
    env_id = load_resolved(Path("run")).env.id
    assert env_id == "catch:Catch"
    assert find_spec(env_id).max_episode_steps is None
    assert find_spec("catch:Catch-v0").max_episode_steps is not None


@pytest.mark.parametrize(
    ("env", "more", "match"),
    [
        (
            nested(),
            ("actor_manager=process",),
            r"=process needs an env that can .*pickled.*=thread",
        ),
        (nested(), ("evaluator.background=true",), "=true needs an env that can be pickled"),
        (Catch(), (), r"env must be a callable .* gymnasium\.Env, got Catch"),
        (Catch, ("env=atari", "env.game=pong"), r"env=… needs settings of env=gym, got Atari"),
    ],
)
def test_unusable_env_arguments_are_refused(env: Any, more: tuple[str, ...], match: str) -> None:
    with pytest.raises(ConfigError, match=match):
        train(small(*more), env=env)
    assert not Path("run").exists()
