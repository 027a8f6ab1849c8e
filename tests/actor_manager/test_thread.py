"""What only threads can show."""

from __future__ import annotations

import math
import sys
import threading

import pytest
from fakes import CountingEnv
from managers import Built, count, receive, snapshot

from border_cli.actor_manager import thread
from border_cli.core.errors import ActorCrashed, ActorHung


def test_actors_blocked_on_a_full_channel_stop_at_once() -> None:
    built = Built("thread", num_actors=4, n_buffer=1)
    with built.manager as manager:
        manager.publish(snapshot())
        manager.permit(math.inf)
        while manager.gauges()["async/queue_fill"] < 1:
            threading.Event().wait(0.001)
    assert all(env.closed for env in built.envs.made if isinstance(env, CountingEnv))


def test_a_slow_learner_makes_actors_wait_instead_of_filling_memory() -> None:
    built = Built("thread", num_actors=2, n_buffer=5)
    with built.manager as manager:
        manager.publish(snapshot())
        manager.permit(math.inf)
        receive(manager, 5)
        while manager.gauges()["async/queue_fill"] < 1 or not all(
            each.waiting_for == "space in the channel" for each in manager.heartbeats()
        ):
            threading.Event().wait(0.001)
        made = sum(each.env_steps for each in manager.stats())
        taken = sum(each.samples for each in manager.stats())
        # two messages per actor in the channel, and one full proxy in each hand
        assert made - taken <= 2 * 5


def test_the_others_deliver_what_they_have_when_one_crashes() -> None:
    three_steps, crashed = threading.Event(), threading.Event()

    class Crashing(CountingEnv):
        def close(self) -> None:
            super().close()
            crashed.set()

    def crash(_: int) -> None:
        assert three_steps.wait(5)
        raise RuntimeError("mine")

    def behave(count: int) -> None:
        if count == 3:
            three_steps.set()
        if count == 4:
            assert crashed.wait(5)

    order = iter([Crashing(on_step=crash), CountingEnv(on_step=behave)])
    built = Built("thread", lambda _: next(order), num_actors=2, n_buffer=100, max_restarts=0)
    samples = 0

    def run() -> None:
        nonlocal samples
        with built.manager as manager:
            manager.publish(snapshot())
            manager.permit(math.inf)
            try:
                while True:
                    samples += count(manager.receive(5))
            finally:
                samples += count(manager.stop())

    with pytest.raises(ActorCrashed, match="mine"):
        run()
    assert samples >= 3


def test_an_actor_that_does_not_stop_is_named_with_its_stack() -> None:
    entered, release = threading.Event(), threading.Event()

    def hang(_: int) -> None:
        entered.set()
        release.wait(60)

    built = Built("thread", lambda _: CountingEnv(on_step=hang), num_actors=1, join_timeout_s=0.1)

    def run() -> None:
        with built.manager as manager:
            manager.publish(snapshot())
            manager.permit(math.inf)
            assert entered.wait(5)

    with pytest.raises(ActorHung, match=r"release\.wait\(60\)"):
        run()
    release.set()


@pytest.mark.stress
def test_managers_start_and_stop_hundreds_of_times() -> None:
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(300):
            built = Built("thread", num_actors=4, n_buffer=1)
            with built.manager as manager:
                manager.publish(snapshot())
                manager.permit(200)
                receive(manager, 100)
                manager.stop()
            stats = manager.stats()
            assert sum(each.env_steps for each in stats) == sum(
                each.samples + each.lost_samples for each in stats
            )
    finally:
        sys.setswitchinterval(interval)


def test_threads_take_turns_more_often_within_the_block_only() -> None:
    before = sys.getswitchinterval()
    with Built("thread", num_actors=1).manager:
        assert sys.getswitchinterval() == pytest.approx(thread.SWITCH_INTERVAL_S)
    assert sys.getswitchinterval() == before
