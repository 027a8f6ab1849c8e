"""A remote actor, called directly in the test's process."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from border_cli.actor_manager.actor import ActorFactory
from border_cli.actor_manager.shared_weights import pack_snapshot, unpack_snapshot
from border_cli.core.interfaces import EnvFactory
from border_cli.core.types import Snapshot
from border_cli.ray.config import RayConfig
from border_cli.ray.remote_actor import CallResult, RemoteActor
from border_cli.system.start import pack
from tests.support.fakes import FakePolicyFactory, OneStep
from tests.support.scripted_envs import (
    BUILDING,
    CalmEnvFactory,
    Life,
    ScriptedEnvFactory,
    complain,
    fail,
    misbehave,
)

LONG_S = 60.0


@pytest.fixture(autouse=True)
def log_as_before() -> Any:
    """Restores the root logger, whose handlers and level `prepare` replaces."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


def snapshot(opt_steps: int = 3) -> Snapshot:
    return Snapshot(opt_steps=opt_steps, env_steps=5, warm_up=True, arrays={})


def remote_actor(factory: EnvFactory | None = None) -> RemoteActor:
    make_actor = ActorFactory(
        seed=0,
        env_factory=factory or CalmEnvFactory(),
        policy_factory=FakePolicyFactory(),
        make_step_processor=OneStep,
    )
    actor = RemoteActor(pack("test", [], make_actor), RayConfig(), 4, 0, logging.WARNING)
    actor.prepare()
    return actor


def built_actor(factory: EnvFactory | None = None) -> RemoteActor:
    actor = remote_actor(factory)
    assert actor.build().failure is None
    return actor


def act(actor: RemoteActor, samples: int, version: int | None = None) -> CallResult:
    weights = None if version is None else pack_snapshot(snapshot())
    return actor.act(samples, LONG_S, version, weights)


def test_a_call_returns_what_was_asked_for_in_one_block() -> None:
    actor = built_actor()
    result = act(actor, 25, version=1)
    assert (result.rows, result.env_steps) == (25, 25)
    assert result.message is not None
    assert result.message.opt_steps == 3
    assert len(result.message.parts) == 1
    assert [episode.length for episode in result.message.episodes] == [10, 10]
    assert act(actor, 7).rows == 7  # with its current weights
    actor.close()


def test_environments_that_step_together_finish_their_round() -> None:
    actor = built_actor(CalmEnvFactory(num_envs=4))
    assert act(actor, 6, version=1).rows == 8
    actor.close()


def test_a_call_ends_with_the_step_that_exceeds_its_time() -> None:
    actor = built_actor()
    result = actor.act(1_000_000, 0.0, 1, pack_snapshot(snapshot()))
    assert result.rows == 0
    assert result.failure is None
    actor.close()


def test_a_failure_brings_its_traceback_and_the_rows_made_before(tmp_path: Path) -> None:
    actor = built_actor(ScriptedEnvFactory(folder=tmp_path, lives=(Life(deed=fail, at=5),)))
    result = act(actor, 9, version=1)
    assert result.failure is not None
    assert "the simulator broke at step 5" in result.failure
    assert result.rows == result.env_steps == 4
    assert act(actor, 9) == CallResult()  # a call sent before the failure was known


def test_an_environment_that_cannot_be_built_is_an_answer(tmp_path: Path) -> None:
    actor = remote_actor(ScriptedEnvFactory(folder=tmp_path, lives=(Life(deed=fail, at=BUILDING),)))
    failure = actor.build().failure
    assert failure is not None
    assert "the simulator broke at step 0" in failure


def test_a_first_observation_that_does_not_fit_is_a_refusal(tmp_path: Path) -> None:
    lives = (Life(deed=misbehave, at=BUILDING),)
    built = remote_actor(ScriptedEnvFactory(folder=tmp_path, lives=lives)).build()
    assert str(built.refusal) == "actor 4, after 0 env steps: it is wrong"
    assert built.failure is None


def test_what_an_environment_logs_comes_with_the_answer(tmp_path: Path) -> None:
    actor = built_actor(ScriptedEnvFactory(folder=tmp_path, lives=(Life(deed=complain, at=2),)))
    result = act(actor, 3, version=1)
    assert result.logged == (("simulator", logging.WARNING, "the fuel is at 3 %"),)
    assert act(actor, 3).logged == ()
    actor.close()


def test_weights_arrive_as_they_were_sent() -> None:
    arrays = {
        "bias": np.arange(3, dtype=np.float32),
        "none": np.zeros((0, 4), np.float32),
        "scale": np.array(0.25, np.float64),
        "table": np.arange(6, dtype=np.float64).reshape(2, 3).T,
    }
    sent = Snapshot(opt_steps=7, env_steps=2**40, warm_up=False, arrays=arrays)
    forms = {name: (value.dtype, value.shape) for name, value in arrays.items()}
    weights = pack_snapshot(sent)
    weights.flags.writeable = False  # like an array received through Ray
    received = unpack_snapshot(weights, forms)
    assert (received.opt_steps, received.env_steps, received.warm_up) == (7, 2**40, False)
    for name, array in arrays.items():
        np.testing.assert_array_equal(received.arrays[name], array)
        assert received.arrays[name].dtype == array.dtype
        assert array.size == 0 or np.shares_memory(received.arrays[name], weights)
