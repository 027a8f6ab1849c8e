"""The channel between an actor's process and the learner: waits, wake-ups and counters."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from multiprocessing.connection import wait

import pytest

from border_cli.actor_manager import shared_channel as words
from border_cli.actor_manager.message_ring import MessageReader
from border_cli.actor_manager.shared_channel import ChannelWriter, SharedChannel
from border_cli.core.types import Experience
from tests.support.actor_managers import kept
from tests.support.channels import assert_same_rows, channel_of, message_of


@pytest.fixture
def channel() -> Iterator[SharedChannel]:
    channel = channel_of("vector", capacity=8)
    yield channel
    channel.learner_pipe.close()
    channel.close()


def test_a_message_larger_than_the_ring_waits_for_space_and_a_release_wakes_it(
    channel: SharedChannel,
) -> None:
    writer, reader = ChannelWriter(channel), MessageReader(channel.ring)
    message = message_of("vector", 0, 21)
    thread = threading.Thread(target=writer.send, args=(message,), daemon=True)
    thread.start()
    arrived: list[Experience] = []
    for taken in (8, 16):
        while channel.actor[words.WAITS] != words.SPACE or not reader.has_news:
            threading.Event().wait(0.001)
        arrived += [kept(experience) for experience in reader.take()]
        assert sum(len(experience.transitions) for experience in arrived) == taken
        channel.release(reader)
    thread.join(5)
    assert not thread.is_alive()
    assert channel.actor[words.WAITS] == words.NOTHING
    arrived += [kept(experience) for experience in reader.take()]
    assert_same_rows("vector", arrived, 0, 21)


@pytest.mark.parametrize(("waits", "woken"), [(1, 1), (0, 0)])
def test_a_message_wakes_a_learner_that_waits(
    channel: SharedChannel, waits: int, woken: int
) -> None:
    channel.learner[words.LEARNER_WAITS] = waits
    ChannelWriter(channel).send(message_of("vector", 0, 2))
    assert len(wait([channel.learner_pipe.fileno()], 0)) == woken


def test_an_actor_that_died_between_its_message_and_its_count_lost_nothing(
    channel: SharedChannel,
) -> None:
    ChannelWriter(channel).send(message_of("vector", 0, 5))  # six env steps
    channel.actor[words.COLLECTED], channel.actor[words.ENV_STEPS] = 4, 5
    assert channel.reap() == 0
    assert (channel.actor[words.COLLECTED], channel.actor[words.ENV_STEPS]) == (5, 6)
    # The second actor never sends two of its samples; the third dies as the first one did.
    channel.actor[words.COLLECTED], channel.actor[words.ENV_STEPS] = 7, 8
    assert channel.reap() == 2
    ChannelWriter(channel).send(message_of("vector", 5, 3))  # four env steps
    assert channel.reap() == 0
    assert (channel.actor[words.COLLECTED], channel.actor[words.ENV_STEPS]) == (8, 12)
