"""Actors in threads, and their bounded channel."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from border_cli.actor_manager.actor import Message, ReplayBufferProxy
from border_cli.actor_manager.thread import Channel
from border_cli.core.types import Experience
from border_cli.errors import ActorHung
from tests.support.actor_managers import Built, receive, start
from tests.support.fakes import CountingEnv, FakeClock, OneStep


def message(number: int) -> Experience:
    sent: list[Message] = []

    def send(message: Message) -> float:
        sent.append(message)
        return 0.0

    proxy = ReplayBufferProxy(number, 1, send, FakeClock())
    step = CountingEnv().step(np.zeros(1, np.int64))
    proxy.push(OneStep().process(step), env_steps=1, episodes=(), opt_steps=0)
    return sent[0].experience()


def ids(messages: list[Experience]) -> list[int]:
    return [message.actor_id for message in messages]


def test_a_wake_up_before_the_wait_ends_the_wait() -> None:
    channel = Channel(1)
    channel.wake()
    assert channel.drain(1_000) == []  # does not wait for 1000 s
    channel.put(message(0))
    assert ids(channel.drain(1_000)) == [0]


def test_actors_blocked_on_a_full_channel_stop_at_once() -> None:
    built = Built("thread", num_actors=4, n_buffer=1)
    with built.manager as manager:
        start(manager)
        while manager.gauges()["async/queue_fill"] < 1:
            threading.Event().wait(0.001)
    assert all(env.closed for env in built.envs.made if isinstance(env, CountingEnv))


def test_a_slow_learner_makes_actors_wait_instead_of_filling_memory() -> None:
    built = Built("thread", num_actors=2, n_buffer=5)
    with built.manager as manager:
        start(manager)
        receive(manager, 5)
        while manager.gauges()["async/queue_fill"] < 1 or not all(
            handle.waiting_for == "space in the channel" for handle in manager.heartbeats()
        ):
            threading.Event().wait(0.001)
        env_steps = sum(actor.env_steps for actor in manager.stats())
        samples = sum(actor.samples for actor in manager.stats())
        # two messages per actor in the channel, and one full proxy per actor
        assert env_steps - samples <= 2 * 2 * 5 + 2 * 5


def test_an_actor_that_does_not_stop_is_named_with_its_stack() -> None:
    entered, release = threading.Event(), threading.Event()

    def hang(_: int) -> None:
        entered.set()
        release.wait(60)

    built = Built("thread", lambda _: CountingEnv(on_step=hang), num_actors=1, join_timeout_s=0.1)

    def run() -> None:
        with built.manager as manager:
            start(manager)
            assert entered.wait(5)

    with pytest.raises(ActorHung, match=r"release\.wait\(60\)"):
        run()
    release.set()
