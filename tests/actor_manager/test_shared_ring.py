"""The one ring between the broker of a cluster and the learner."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from channels import SPECS, assert_same_rows, message_of
from managers import kept

from border_cli.actor_manager.remote_actor import Answer, answer_of
from border_cli.actor_manager.shared_ring import ACTOR_WORDS, RingReader, RingWriter, SharedRing
from border_cli.core.returns import Moments
from border_cli.core.types import Episode, Experience

ACTORS = 5


def ring_of(spec_name: str, **settings: Any) -> SharedRing:
    given = {"capacity": 16, "num_actors": ACTORS} | settings
    return SharedRing(SPECS[spec_name], **given)


def answer(
    spec_name: str, first: int, rows: int, *, returns: tuple[Moments, ...] = (), **more: Any
) -> Answer:
    message = replace(message_of(spec_name, first, rows, **more), returns=returns)
    return answer_of(message, SPECS[spec_name])


@pytest.fixture
def ring() -> Iterator[SharedRing]:
    made = ring_of("vector", returns=True)
    yield made
    made.close()


@pytest.mark.parametrize("spec_name", SPECS)
def test_what_the_actors_returned_arrives_in_order_whatever_the_sizes(spec_name: str) -> None:
    """Up to twice as much at a time as the ring holds."""
    rng = np.random.default_rng(0)
    ring = ring_of(spec_name)
    writer, reader = RingWriter(ring), RingReader(ring, ACTORS)
    written, env_steps = 0, 0
    sent: list[Episode] = []
    from_actor = [0] * ACTORS
    arrived: list[Experience] = []
    for _ in range(600):
        if rng.random() < 0.5 and not writer.waits_for_space:
            size = int(rng.integers(0, 33))
            episodes = tuple(Episode(float(written), each) for each in range(rng.integers(0, 20)))
            actor_id = int(rng.integers(ACTORS))
            writer.put(actor_id, answer(spec_name, written, size, episodes=episodes, rng=rng))
            written += size
            env_steps += size + 1
            sent += episodes
            from_actor[actor_id] += size
        writer.write()
        if rng.random() < 0.6:
            arrived += [kept(each) for each in reader.take()]
        if rng.random() < 0.6:
            reader.release()
    while writer.waits_for_space or reader.has_news:
        arrived += [kept(each) for each in reader.take()]
        reader.release()
        writer.write()
    assert_same_rows(spec_name, arrived, 0, written)
    assert written > 1_000
    assert [each for message in arrived for each in message.episodes] == sent
    assert sum(each.env_steps for each in arrived) == env_steps
    assert reader.rows == from_actor
    ring.close()


@pytest.mark.parametrize(
    ("env_steps", "found"), [(10, [6, 4]), (12, [8, 4]), (9, [5, 4]), (3, [0, 3])]
)
def test_each_piece_of_an_answer_has_the_env_steps_of_its_rows(
    env_steps: int, found: list[int], ring: SharedRing
) -> None:
    """A ring of 16 rows, of which the first answer leaves 6 before its end."""
    writer, reader = RingWriter(ring), RingReader(ring, ACTORS)
    for rows in (10, 10):
        writer.put(0, replace(answer("vector", 0, rows), env_steps=env_steps))
        writer.write()
        arrived = [(len(each.transitions), each.env_steps) for each in reader.take()]
        reader.release()
    assert arrived == list(zip([6, 4], found, strict=True))


def test_what_was_taken_is_not_written_over_before_it_is_released(ring: SharedRing) -> None:
    writer, reader = RingWriter(ring), RingReader(ring, ACTORS)
    writer.put(1, answer("vector", 0, 10))
    writer.write()
    held = reader.take()
    writer.put(2, answer("vector", 10, 16))
    writer.write()
    assert writer.space == -10
    later = reader.take()
    assert_same_rows("vector", [*held, *later], 0, 16)
    reader.release()
    writer.write()
    assert writer.space == 6
    assert_same_rows("vector", reader.take(), 16, 26)


def test_nothing_is_seen_before_it_is_written_whole(ring: SharedRing) -> None:
    writer, reader = RingWriter(ring), RingReader(ring, ACTORS)
    writer.put(0, answer("vector", 0, 4))
    assert not reader.has_news
    writer.write()
    assert reader.has_news
    (message,) = reader.take()
    assert (message.actor_id, message.opt_steps, message.env_steps) == (0, 0, 5)
    assert not reader.has_news


def test_running_returns_arrive_once(ring: SharedRing) -> None:
    writer, reader = RingWriter(ring), RingReader(ring, ACTORS)
    arrived: list[Moments] = []
    sent = []
    for number in range(200):
        returns = (Moments(number + 1, number / 3, number / 7),) if number % 3 else ()
        sent += returns
        writer.put(number % ACTORS, answer("vector", 0, number % 20, returns=returns))
        while writer.waits_for_space:
            writer.write()
            arrived += [each for message in reader.take() for each in message.returns]
            reader.release()
    assert arrived == sent


def test_more_messages_than_have_a_place_wait(ring: SharedRing) -> None:
    writer, reader = RingWriter(ring), RingReader(ring, ACTORS)
    for _ in range(ring.messages + 3):
        writer.put(0, Answer(env_steps=1))
    writer.write()
    assert len(reader.take()) == ring.messages
    reader.release()
    writer.write()
    assert len(reader.take()) == 3


def test_counters_can_be_read_after_it_is_closed(ring: SharedRing) -> None:
    ring.actors[2 * ACTOR_WORDS] = 7
    ring.close()
    assert ring.actors[2 * ACTOR_WORDS] == 7
