"""The ring of rows between an actor's process and the learner's."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from multiprocessing.connection import wait

import numpy as np
import pytest
from lanes import SPECS, assert_same_rows, lane_of, parcel_of
from managers import kept

from border_cli.actor_manager import lane as words
from border_cli.actor_manager.lane import Lane
from border_cli.actor_manager.ring_reader import RingReader
from border_cli.actor_manager.ring_writer import RingWriter, pieces
from border_cli.core.returns import Moments
from border_cli.core.types import Episode, Experience


@pytest.fixture(params=list(SPECS))
def spec_name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def lane() -> Iterator[Lane]:
    made = lane_of("vector", capacity=8)
    yield made
    made.learner_bell.close()
    made.close()


def test_what_goes_in_comes_out_in_order_whatever_the_sizes(spec_name: str) -> None:
    rng = np.random.default_rng(0)
    capacity = 16
    lane = lane_of(spec_name, capacity=capacity)
    writer, reader = RingWriter(lane), RingReader(3, lane)
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
            writer.put(parcel_of(spec_name, written, size, episodes=episodes, rng=rng))
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
    lane.learner_bell.close()
    lane.close()


def test_a_message_at_the_end_of_the_ring_comes_in_two_stretches(lane: Lane) -> None:
    writer, reader = RingWriter(lane), RingReader(0, lane)
    writer.put(parcel_of("vector", 0, 6))
    reader.take()
    reader.release()
    writer.put(parcel_of("vector", 6, 5, episodes=(Episode(2.5, 7),)))
    first, second = reader.take()
    assert (len(first.transitions), len(second.transitions)) == (2, 3)
    assert (first.env_steps, second.env_steps) == (6, 0)
    assert (first.episodes, second.episodes) == ((Episode(2.5, 7),), ())
    assert_same_rows("vector", [first, second], 6, 11)


def test_a_message_without_rows_still_carries_steps_and_episodes(lane: Lane) -> None:
    writer, reader = RingWriter(lane), RingReader(0, lane)
    writer.put(parcel_of("vector", 0, 0, episodes=(Episode(1.0, 4),)))
    (only,) = reader.take()
    assert (len(only.transitions), only.env_steps) == (0, 1)
    assert only.episodes == (Episode(1.0, 4),)
    assert reader.take() == []


def test_several_messages_are_taken_as_one_with_the_newest_opt_steps(lane: Lane) -> None:
    writer, reader = RingWriter(lane), RingReader(0, lane)
    for number in range(3):
        writer.put(replace(parcel_of("vector", 2 * number, 2), opt_steps=10 * number))
    (only,) = reader.take()
    assert (only.opt_steps, only.env_steps) == (20, 9)
    assert_same_rows("vector", [only], 0, 6)


def test_a_parcel_larger_than_the_ring_goes_in_pieces() -> None:
    parcel = parcel_of("dict", 0, 21, episodes=tuple(Episode(0.0, each) for each in range(9)))
    made = pieces(parcel, 8)
    assert [each.rows for each in made] == [8, 8, 5]
    assert [each.env_steps for each in made] == [22, 0, 0]
    assert [len(each.episodes) for each in made] == [8, 1, 0]
    lane = lane_of("dict", capacity=8)
    writer, reader = RingWriter(lane), RingReader(0, lane)
    thread = threading.Thread(target=writer.put, args=(parcel,), daemon=True)
    thread.start()
    arrived: list[Experience] = []
    while reader.rows < 21:
        arrived += [kept(each) for each in reader.take()]
        reader.release()
    thread.join(5)
    assert_same_rows("dict", arrived, 0, 21)
    assert [each.length for message in arrived for each in message.episodes] == list(range(9))
    lane.learner_bell.close()
    lane.close()


def test_many_episodes_and_no_rows_go_in_pieces_too() -> None:
    parcel = parcel_of("vector", 0, 0, episodes=tuple(Episode(1.0, each) for each in range(17)))
    assert [(each.rows, len(each.episodes)) for each in pieces(parcel, 8)] == [
        (0, 8), (0, 8), (0, 1),
    ]  # fmt: skip


def test_the_returns_of_every_message_arrive_once_and_in_order() -> None:
    """Over many turns of the ring; some messages have none, and some are taken together."""
    rng = np.random.default_rng(2)
    lane = lane_of("vector", capacity=8, returns=True)
    writer, reader = RingWriter(lane), RingReader(0, lane)
    sent: list[Moments] = []
    arrived: list[Moments] = []
    rows = 0
    for number in range(10 * words.MESSAGES):
        size = int(rng.integers(3))
        returns = (Moments(size + 1, number / 3, number / 7),) if rng.random() < 0.8 else ()
        if not writer._has_room(size, 0) or rng.random() < 0.3:
            arrived += [each for message in reader.take() for each in message.returns]
            reader.release()
        writer.put(replace(parcel_of("vector", rows, size), returns=returns))
        sent += returns
        rows += size
    arrived += [each for message in reader.take() for each in message.returns]
    assert arrived == sent
    assert len(sent) > 7 * words.MESSAGES
    lane.learner_bell.close()
    lane.close()


def test_the_returns_of_a_parcel_in_pieces_go_with_the_first() -> None:
    returns = (Moments(22, 1.5, 2.5),)
    parcel = replace(parcel_of("vector", 0, 21), returns=returns)
    assert [each.returns for each in pieces(parcel, 8)] == [returns, (), ()]


def test_where_nobody_needs_returns_a_lane_has_no_room_for_them(lane: Lane) -> None:
    with_room = lane_of("vector", capacity=8, returns=True)
    sizes = [sum(array.nbytes for array in each._shared.arrays) for each in (lane, with_room)]
    assert sizes[1] - sizes[0] == 8 * words.RETURNS * words.MESSAGES
    assert len(lane.returns) == 0
    with_room.learner_bell.close()
    with_room.close()


@pytest.mark.parametrize("rows", [8, 1, 0], ids=["rows", "odd", "messages"])
def test_a_full_ring_blocks_and_a_release_wakes(lane: Lane, rows: int) -> None:
    """Full of rows, or of messages without rows; what was taken is not free before its release."""
    writer, reader = RingWriter(lane), RingReader(0, lane)
    put = 0
    while writer._has_room(rows, 0):
        writer.put(parcel_of("vector", put * rows, rows))
        put += 1
    assert put == {8: 1, 1: 8, 0: words.MESSAGES - 1}[rows]
    thread = threading.Thread(
        target=writer.put, args=(parcel_of("vector", put * rows, rows),), daemon=True
    )
    thread.start()
    while lane.actor[words.WAITS] != words.ROOM:
        threading.Event().wait(0.001)
    arrived = reader.take()
    assert sum(len(each.transitions) for each in arrived) == put * rows
    assert lane.actor[words.WRITTEN] == put
    assert_same_rows("vector", arrived, 0, put * rows)
    reader.release()
    thread.join(5)
    assert not thread.is_alive()
    assert lane.actor[words.WAITS] == words.NOTHING
    (last,) = reader.take()
    assert_same_rows("vector", [last], put * rows, (put + 1) * rows)


@pytest.mark.parametrize(("waits", "rings"), [(words.ROOM, 1), (words.PERMISSION, 0)])
def test_a_release_rings_for_who_waits_for_room(lane: Lane, waits: int, rings: int) -> None:
    RingWriter(lane).put(parcel_of("vector", 0, 2))
    reader = RingReader(0, lane)
    reader.take()
    lane.actor[words.WAITS] = waits
    reader.release()
    assert len(wait([lane.bell.fileno()], 0)) == rings


@pytest.mark.parametrize(("waits", "rings"), [(1, 1), (0, 0)])
def test_a_message_rings_for_a_learner_that_waits(lane: Lane, waits: int, rings: int) -> None:
    lane.learner[words.LEARNER_WAITS] = waits
    RingWriter(lane).put(parcel_of("vector", 0, 2))
    assert len(wait([lane.learner_bell.fileno()], 0)) == rings


def test_threads_at_both_ends_keep_every_row() -> None:
    lane = lane_of("vector", capacity=8)
    writer, reader = RingWriter(lane), RingReader(0, lane)
    sizes = np.random.default_rng(1).integers(0, 12, 400).tolist()  # some larger than the ring
    total = sum(sizes)

    def write() -> None:
        start = 0
        for size in sizes:
            writer.put(parcel_of("vector", start, size))
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
    lane.learner_bell.close()
    lane.close()


def test_the_fill_is_the_share_of_rows_under_way(lane: Lane) -> None:
    writer, reader = RingWriter(lane), RingReader(0, lane)
    writer.put(parcel_of("vector", 0, 6))
    assert reader.fill == 0.75
    reader.take()
    assert reader.fill == 0.75
    reader.release()
    assert reader.fill == 0.0
