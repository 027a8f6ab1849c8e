"""The shared memory between an actor's process and the learner: its ring and its counters."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from multiprocessing.connection import wait

import numpy as np
import pytest
from channels import SPECS, assert_same_rows, channel_of, message_of
from managers import kept

from border_cli.actor_manager import shared_channel as words
from border_cli.actor_manager.shared_channel import (
    ChannelReader,
    ChannelWriter,
    SharedChannel,
    pieces,
)
from border_cli.core.returns import Moments
from border_cli.core.types import Episode, Experience


@pytest.fixture(params=list(SPECS))
def spec_name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def channel() -> Iterator[SharedChannel]:
    made = channel_of("vector", capacity=8)
    yield made
    made.learner_pipe.close()
    made.close()


def test_what_goes_in_comes_out_in_order_whatever_the_sizes(spec_name: str) -> None:
    rng = np.random.default_rng(0)
    capacity = 16
    channel = channel_of(spec_name, capacity=capacity)
    writer, reader = ChannelWriter(channel), ChannelReader(3, channel)
    written = taken = released = env_steps = 0  # rows
    sent: list[Episode] = []
    arrived: list[Experience] = []
    messages: list[int] = []  # rows in all after each message that may still be in the ring
    for _ in range(1_500):
        size = int(rng.integers(0, 7))
        if rng.random() < 0.6 and written + size - released <= capacity and len(messages) < 60:
            episodes = tuple(Episode(float(written), each) for each in range(rng.integers(0, 3)))
            ended_since = len(sent) + len(episodes) - sum(len(each.episodes) for each in arrived)
            if ended_since > capacity:
                continue
            writer.send(message_of(spec_name, written, size, episodes=episodes, rng=rng))
            sent += episodes
            written += size
            env_steps += size + 1
            messages.append(written)
        else:
            new = [kept(each) for each in reader.take()]
            assert sum(len(each.transitions) for each in new) == written - taken
            assert_same_rows(spec_name, new, taken, written)
            arrived += new
            taken = written
            if rng.random() < 0.7:
                reader.release()
                released, messages = taken, []
    arrived += [kept(each) for each in reader.take()]
    assert reader.rows == written > 20 * capacity  # it began anew many times
    assert [episode for each in arrived for episode in each.episodes] == sent
    assert sum(each.env_steps for each in arrived) == env_steps
    assert {each.actor_id for each in arrived} == {3}
    channel.learner_pipe.close()
    channel.close()


def test_a_message_at_the_end_of_the_ring_comes_in_two_stretches(channel: SharedChannel) -> None:
    writer, reader = ChannelWriter(channel), ChannelReader(0, channel)
    writer.send(message_of("vector", 0, 6))
    reader.take()
    reader.release()
    writer.send(message_of("vector", 6, 5, episodes=(Episode(2.5, 7),)))
    first, second = reader.take()
    assert (len(first.transitions), len(second.transitions)) == (2, 3)
    assert (first.env_steps, second.env_steps) == (6, 0)
    assert (first.episodes, second.episodes) == ((Episode(2.5, 7),), ())
    assert_same_rows("vector", [first, second], 6, 11)


def test_a_message_without_rows_still_carries_steps_and_episodes(channel: SharedChannel) -> None:
    writer, reader = ChannelWriter(channel), ChannelReader(0, channel)
    writer.send(message_of("vector", 0, 0, episodes=(Episode(1.0, 4),)))
    (only,) = reader.take()
    assert (len(only.transitions), only.env_steps) == (0, 1)
    assert only.episodes == (Episode(1.0, 4),)
    assert reader.take() == []


def test_several_messages_are_taken_as_one_with_the_newest_opt_steps(
    channel: SharedChannel,
) -> None:
    writer, reader = ChannelWriter(channel), ChannelReader(0, channel)
    for number in range(3):
        writer.send(replace(message_of("vector", 2 * number, 2), opt_steps=10 * number))
    (only,) = reader.take()
    assert (only.opt_steps, only.env_steps) == (20, 9)
    assert_same_rows("vector", [only], 0, 6)


def test_a_parcel_larger_than_the_ring_goes_in_pieces() -> None:
    message = message_of("dict", 0, 21, episodes=tuple(Episode(0.0, each) for each in range(9)))
    made = pieces(message, 8)
    assert [each.rows for each in made] == [8, 8, 5]
    assert [each.env_steps for each in made] == [22, 0, 0]
    assert [len(each.episodes) for each in made] == [8, 1, 0]
    channel = channel_of("dict", capacity=8)
    writer, reader = ChannelWriter(channel), ChannelReader(0, channel)
    thread = threading.Thread(target=writer.send, args=(message,), daemon=True)
    thread.start()
    arrived: list[Experience] = []
    while reader.rows < 21:
        arrived += [kept(each) for each in reader.take()]
        reader.release()
    thread.join(5)
    assert_same_rows("dict", arrived, 0, 21)
    assert [each.length for message in arrived for each in message.episodes] == list(range(9))
    channel.learner_pipe.close()
    channel.close()


def test_many_episodes_and_no_rows_go_in_pieces_too() -> None:
    message = message_of("vector", 0, 0, episodes=tuple(Episode(1.0, each) for each in range(17)))
    assert [(each.rows, len(each.episodes)) for each in pieces(message, 8)] == [
        (0, 8), (0, 8), (0, 1),
    ]  # fmt: skip


def test_the_returns_of_every_message_arrive_once_and_in_order() -> None:
    """Over many turns of the ring; some messages have none, and some are taken together."""
    rng = np.random.default_rng(2)
    channel = channel_of("vector", capacity=8, returns=True)
    writer, reader = ChannelWriter(channel), ChannelReader(0, channel)
    sent: list[Moments] = []
    arrived: list[Moments] = []
    rows = 0
    for number in range(10 * words.MESSAGES):
        size = int(rng.integers(3))
        returns = (Moments(size + 1, number / 3, number / 7),) if rng.random() < 0.8 else ()
        if not writer._has_space(size, 0) or rng.random() < 0.3:
            arrived += [each for message in reader.take() for each in message.returns]
            reader.release()
        writer.send(replace(message_of("vector", rows, size), returns=returns))
        sent += returns
        rows += size
    arrived += [each for message in reader.take() for each in message.returns]
    assert arrived == sent
    assert len(sent) > 7 * words.MESSAGES
    channel.learner_pipe.close()
    channel.close()


def test_the_returns_of_a_parcel_in_pieces_go_with_the_first() -> None:
    returns = (Moments(22, 1.5, 2.5),)
    message = replace(message_of("vector", 0, 21), returns=returns)
    assert [each.returns for each in pieces(message, 8)] == [returns, (), ()]


def test_where_nobody_needs_returns_a_lane_has_no_room_for_them(channel: SharedChannel) -> None:
    with_space = channel_of("vector", capacity=8, returns=True)
    sizes = [sum(array.nbytes for array in each._shared.arrays) for each in (channel, with_space)]
    assert sizes[1] - sizes[0] == 8 * words.RETURNS * words.MESSAGES
    assert len(channel.returns) == 0
    with_space.learner_pipe.close()
    with_space.close()


@pytest.mark.parametrize("rows", [8, 1, 0], ids=["rows", "odd", "messages"])
def test_a_full_ring_blocks_and_a_release_wakes(channel: SharedChannel, rows: int) -> None:
    """Full of rows, or of messages without rows; what was taken is not free before its release."""
    writer, reader = ChannelWriter(channel), ChannelReader(0, channel)
    put = 0
    while writer._has_space(rows, 0):
        writer.send(message_of("vector", put * rows, rows))
        put += 1
    assert put == {8: 1, 1: 8, 0: words.MESSAGES - 1}[rows]
    thread = threading.Thread(
        target=writer.send, args=(message_of("vector", put * rows, rows),), daemon=True
    )
    thread.start()
    while channel.actor[words.WAITS] != words.SPACE:
        threading.Event().wait(0.001)
    arrived = reader.take()
    assert sum(len(each.transitions) for each in arrived) == put * rows
    assert channel.actor[words.WRITTEN] == put
    assert_same_rows("vector", arrived, 0, put * rows)
    reader.release()
    thread.join(5)
    assert not thread.is_alive()
    assert channel.actor[words.WAITS] == words.NOTHING
    (last,) = reader.take()
    assert_same_rows("vector", [last], put * rows, (put + 1) * rows)


@pytest.mark.parametrize(("waits", "woken"), [(words.SPACE, 1), (words.BUDGET, 0)])
def test_a_release_wakes_an_actor_that_waits_for_space(
    channel: SharedChannel, waits: int, woken: int
) -> None:
    ChannelWriter(channel).send(message_of("vector", 0, 2))
    reader = ChannelReader(0, channel)
    reader.take()
    channel.actor[words.WAITS] = waits
    reader.release()
    assert len(wait([channel.pipe.fileno()], 0)) == woken


@pytest.mark.parametrize(("waits", "woken"), [(1, 1), (0, 0)])
def test_a_message_wakes_a_learner_that_waits(
    channel: SharedChannel, waits: int, woken: int
) -> None:
    channel.learner[words.LEARNER_WAITS] = waits
    ChannelWriter(channel).send(message_of("vector", 0, 2))
    assert len(wait([channel.learner_pipe.fileno()], 0)) == woken


def test_threads_at_both_ends_keep_every_row() -> None:
    channel = channel_of("vector", capacity=8)
    writer, reader = ChannelWriter(channel), ChannelReader(0, channel)
    sizes = np.random.default_rng(1).integers(0, 12, 400).tolist()  # some larger than the ring
    total = sum(sizes)

    def write() -> None:
        start = 0
        for size in sizes:
            writer.send(message_of("vector", start, size))
            start += size

    thread = threading.Thread(target=write, daemon=True)
    thread.start()
    seen = 0
    while seen < total:
        for each in reader.take():
            rows = len(each.transitions)
            assert_same_rows("vector", [each], seen, seen + rows)
            seen += rows
        reader.release()
    thread.join(5)
    channel.learner_pipe.close()
    channel.close()


def test_the_fill_is_the_share_of_rows_in_flight(channel: SharedChannel) -> None:
    writer, reader = ChannelWriter(channel), ChannelReader(0, channel)
    writer.send(message_of("vector", 0, 6))
    assert reader.fill == 0.75
    reader.take()
    assert reader.fill == 0.75
    reader.release()
    assert reader.fill == 0.0


class Killed(BaseException):
    """Stands for a SIGKILL: nothing runs after it."""


class DyingWords:
    """A view of shared words whose k-th store never happens."""

    def __init__(self, real: memoryview, fuse: list[int]) -> None:
        self._real, self._fuse = real, fuse

    def __getitem__(self, at: int) -> int:
        return int(self._real[at])

    def __len__(self) -> int:
        return len(self._real)

    def __setitem__(self, at: int, value: int) -> None:
        self._fuse[0] -= 1
        if self._fuse[0] < 0:
            raise Killed
        self._real[at] = value


class DyingChannel:
    """A channel whose writer is killed at its k-th store."""

    def __init__(self, channel: SharedChannel, stores: int) -> None:
        fuse = [stores]
        self._lane = channel
        self.capacity, self.columns = channel.capacity, channel.columns
        self.learner, self.pipe, self.learner_pipe = (
            channel.learner,
            channel.pipe,
            channel.learner_pipe,
        )
        self.header = channel.header
        self.actor = DyingWords(channel.actor, fuse)
        self.episode = channel.episode
        self.headers = DyingWords(channel.headers, fuse)
        self.episodes = DyingWords(channel.episodes, fuse)
        self.returns = DyingWords(channel.returns, fuse)


@pytest.mark.parametrize("returns", [(), (Moments(6, 0.5, 2.0),)], ids=["", "returns"])
def test_a_writer_that_dies_at_any_store_leaves_nothing_half(returns: tuple[Moments, ...]) -> None:
    episodes = (Episode(1.0, 2), Episode(3.0, 4))
    stores = 4 + 4 + 1  # of the two episodes, of the header, of the count
    stores += 4 * len(returns)  # none, count, mean, squares
    for survived in range(stores + 1):
        channel = channel_of("vector", capacity=8, returns=bool(returns))
        reader = ChannelReader(0, channel)
        ChannelWriter(channel).send(message_of("vector", 0, 5))
        reader.take()
        reader.release()
        dying = ChannelWriter(DyingChannel(channel, survived))  # type: ignore[arg-type]
        whole = survived == stores
        try:
            dying.send(replace(message_of("vector", 100, 6, episodes=episodes), returns=returns))
            assert whole
        except Killed:
            assert not whole
        arrived = reader.take()
        assert sum(len(each.transitions) for each in arrived) == (6 if whole else 0)
        assert [each.episodes for each in arrived] == ([episodes, ()] if whole else [])
        assert [each.returns for each in arrived] == ([returns, ()] if whole else [])
        reader.release()
        channel.reap()
        ChannelWriter(channel).send(message_of("vector", 5, 7, episodes=(Episode(9.0, 9),)))
        arrived = reader.take()
        assert_same_rows("vector", arrived, 5, 12)
        assert sum((each.episodes for each in arrived), ()) == (Episode(9.0, 9),)
        assert not any(each.returns for each in arrived)
        channel.learner_pipe.close()
        channel.close()


def test_a_reap_counts_what_was_made_and_never_written(channel: SharedChannel) -> None:
    writer = ChannelWriter(channel)
    channel.actor[words.MADE] = 7
    channel.actor[words.ENV_STEPS] = 9
    channel.actor[words.WAITS] = words.SPACE
    writer.send(message_of("vector", 0, 5))
    assert channel.reap() == 2
    assert channel.actor[words.MADE] == 5
    assert channel.actor[words.WAITS] == words.NOTHING
    assert channel.reap() == 0  # once only


def test_one_that_died_after_its_message_and_before_its_own_count_lost_nothing(
    channel: SharedChannel,
) -> None:
    ChannelWriter(channel).send(message_of("vector", 0, 5))  # six env steps
    channel.actor[words.MADE], channel.actor[words.ENV_STEPS] = 4, 5
    assert channel.reap() == 0
    assert (channel.actor[words.MADE], channel.actor[words.ENV_STEPS]) == (5, 6)
    # The next one makes two samples that it never sends, the one after it dies as the first did.
    channel.actor[words.MADE], channel.actor[words.ENV_STEPS] = 7, 8
    assert channel.reap() == 2
    ChannelWriter(channel).send(message_of("vector", 5, 3))  # four env steps
    assert channel.reap() == 0
    assert (channel.actor[words.MADE], channel.actor[words.ENV_STEPS]) == (8, 12)
