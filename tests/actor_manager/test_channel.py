"""The bounded channel."""

from __future__ import annotations

import threading

import pytest
from fakes import FakeClock, OneStep

from border_cli.actor_manager.channel import Channel, Closed
from border_cli.actor_manager.proxy import Parcel, ReplayBufferProxy
from border_cli.core.types import Experience


def message(number: int) -> Experience:
    sent: list[Parcel] = []

    def send(parcel: Parcel) -> float:
        sent.append(parcel)
        return 0.0

    proxy = ReplayBufferProxy(number, 1, send, FakeClock())
    from fakes import CountingEnv

    env = CountingEnv()
    import numpy as np

    step = env.step(np.zeros(1, np.int64))
    proxy.push(OneStep().process(step), env_steps=1, episodes=(), opt_steps=0)
    return sent[0].experience()


def ids(messages: list[Experience]) -> list[int]:
    return [each.actor_id for each in messages]


def test_messages_come_out_in_the_order_they_went_in() -> None:
    channel: Channel[Experience] = Channel(3)
    for number in range(3):
        channel.put(message(number))
    assert channel.fill == 1.0
    assert ids(channel.drain()) == [0, 1, 2]
    assert channel.drain() == []
    assert channel.fill == 0.0


def test_a_full_channel_makes_the_producer_wait_for_room() -> None:
    channel: Channel[Experience] = Channel(1)
    channel.put(message(0))
    thread = threading.Thread(target=lambda: channel.put(message(1)), daemon=True)
    thread.start()
    arrived: list[int] = []
    while len(arrived) < 2:
        arrived += ids(channel.drain(5))
    thread.join(5)
    assert arrived == [0, 1]


def test_closing_releases_a_producer_that_waits_and_keeps_what_is_inside() -> None:
    channel: Channel[Experience] = Channel(1)
    channel.put(message(0))
    outcome: list[str] = []

    def put() -> None:
        try:
            channel.put(message(1))
        except Closed:
            outcome.append("closed")

    thread = threading.Thread(target=put, daemon=True)
    thread.start()
    channel.close()
    thread.join(5)
    assert outcome == ["closed"]
    assert ids(channel.drain(5)) == [0]
    with pytest.raises(Closed):
        channel.put(message(2))


def test_a_waiting_consumer_is_woken_by_close() -> None:
    channel: Channel[Experience] = Channel(1)
    arrived: list[list[Experience]] = []
    thread = threading.Thread(target=lambda: arrived.append(channel.drain(60)), daemon=True)
    thread.start()
    channel.close()
    thread.join(5)
    assert arrived == [[]]


def test_news_that_comes_before_the_consumer_waits_ends_its_wait() -> None:
    channel: Channel[Experience] = Channel(1)
    channel.wake()
    assert channel.drain(1_000) == []  # else the watchdog of the tests would end it
    channel.put(message(0))
    assert ids(channel.drain(1_000)) == [0]
