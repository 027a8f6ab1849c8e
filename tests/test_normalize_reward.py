"""Running discounted returns of all environments reach the learner."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from border_cli.actor_manager.actor import Actor, ReplayBufferProxy
from border_cli.actor_manager.weights import WeightSlot
from border_cli.core.interfaces import Env
from border_cli.core.returns import DiscountedReturns, Moments
from border_cli.core.types import Experience
from tests.support.actor_managers import Built, kept, receive, snapshot
from tests.support.discounted_returns import described, pooled, running_returns
from tests.support.fakes import CountingEnv, FakeClock, FakePolicy
from tests.support.scripted_envs import Delayed

GAMMA = 0.9


def returns_of(arrived: Sequence[Experience], actor_id: int) -> list[Moments]:
    return [part for message in arrived if message.actor_id == actor_id for part in message.returns]


def expected_of(env_steps: int, num_envs: int) -> list[float]:
    """Returns the expected statistics of environments with reward 1 and episodes of ten steps."""
    steps = np.arange(env_steps // num_envs)[:, None].repeat(num_envs, axis=1)
    return described(running_returns(np.ones(steps.shape), steps % 10 == 9, GAMMA))


@pytest.mark.parametrize("backend", ["serial", "thread", "process"])
@pytest.mark.parametrize("num_envs", [1, 3])
def test_every_backend_brings_the_returns_of_every_env_step(backend: str, num_envs: int) -> None:
    built = Built(
        backend, num_envs=num_envs, step_processor=Delayed, num_actors=2, n_buffer=4,
        returns_gamma=GAMMA,
    )  # fmt: skip
    with built.manager as manager:
        manager.publish(snapshot())
        manager.permit(300)
        arrived = receive(manager, 300) + [kept(message) for message in manager.stop()]
    acted = [actor for actor in manager.stats() if actor.env_steps]  # one may have collected all
    assert acted
    for stats in acted:
        moments = pooled(returns_of(arrived, stats.actor_id))
        assert moments == pytest.approx(expected_of(stats.env_steps, num_envs), rel=1e-9)


def test_returns_are_neither_sent_nor_saved_unless_the_agent_needs_them() -> None:
    built = Built("serial", num_actors=1, n_buffer=4)
    with built.manager as manager:
        manager.publish(snapshot())
        manager.permit(30)
        arrived = receive(manager, 30)
        state = manager.state_dict()["actors"][0]["state"]
    assert not any(message.returns for message in arrived)
    assert state["proxy"].keys() == {"columns", "env_steps", "episodes"}


def test_resumed_actors_continue_their_running_returns() -> None:
    """The actors are saved in the middle of episodes and of a message."""
    settings: dict[str, Any] = {
        "num_envs": 3, "num_actors": 2, "n_buffer": 16, "returns_gamma": GAMMA,
    }  # fmt: skip
    built = Built("serial", **settings)
    with built.manager as manager:
        manager.publish(snapshot())
        manager.permit(130)
        arrived = receive(manager, 110)
        state = manager.state_dict()
    resumed = Built("serial", state=state, **settings)
    with resumed.manager as manager:
        manager.publish(snapshot())
        manager.permit(400)
        arrived += receive(manager, 250)
        arrived += [kept(message) for message in manager.stop()]
    for stats in manager.stats():
        moments = pooled(returns_of(arrived, stats.actor_id))
        assert moments == pytest.approx(expected_of(stats.env_steps, 3), rel=1e-9)


class Forgetful(CountingEnv):
    """An environment that ignores its saved state, so that all episodes restart."""

    resume = Env.resume


def test_restarted_episodes_reset_their_running_returns() -> None:
    """Returns that were not sent before the restart are kept."""
    discounted = DiscountedReturns(GAMMA, 2)
    returns = {"running": np.array([5.0, 6.0]), "untaken": np.array([5.0])}
    Actor(
        env=Forgetful(num_envs=2),
        env_seed=0,
        policy=FakePolicy(),
        step_processor=Delayed(),
        proxy=ReplayBufferProxy(0, 7, lambda _: 0.0, FakeClock(), discounted),
        weights=WeightSlot(),
        clock=FakeClock(),
        saved={
            "env": {},
            "policy": {},
            "step_processor": {"waiting": []},
            "proxy": {"columns": None, "env_steps": 1, "episodes": [], "returns": returns},
            "opt_steps": 0,
        },
    )
    assert discounted.state_dict()["running"].tolist() == [0, 0]
    assert discounted.state_dict()["untaken"].tolist() == [5]
