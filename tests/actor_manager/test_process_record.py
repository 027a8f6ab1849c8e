"""What is saved of an actor in another process."""

from __future__ import annotations

from lanes import lane_of, parcel_of

from border_cli.actor_manager.lane import GRANTED, MADE
from border_cli.actor_manager.leases import WITHOUT_LIMIT
from border_cli.actor_manager.notes import Note, answer
from border_cli.actor_manager.post import Post
from border_cli.actor_manager.process_record import record_of
from border_cli.actor_manager.ring_reader import RingReader
from border_cli.actor_manager.ring_writer import RingWriter


def test_a_note_counts_only_beside_exactly_the_rows_before_it() -> None:
    lane = lane_of("vector", capacity=16)
    post, reader, writer = Post(0, lane, 3), RingReader(0, lane), RingWriter(lane)
    for first in (0, 2, 4):
        writer.put(parcel_of("vector", first, 2))
    lane.actor[MADE], lane.learner[GRANTED] = 7, 9
    answer(lane, 5, Note(life=0, messages=2, env_steps=6, lost=1, actor={"proxy": None}))
    reader.take(1)
    before = record_of(post, reader, 5, 0.0)
    # One row more was made than sent, four were sent and not received.
    assert (before.actor, before.samples, before.lost, before.balance) == (None, 2, 5, 0)
    reader.take(2)
    exact = record_of(post, reader, 5, 0.0)
    assert (exact.actor, exact.samples, exact.lost) == ({"proxy": None}, 4, 1)
    assert (exact.env_steps, exact.balance) == (6, 5)
    assert record_of(post, reader, 4, 0.0).actor is None
    lane.learner[GRANTED] = WITHOUT_LIMIT
    assert record_of(post, reader, 5, 0.0).balance == 0
    reader.take(3)
    assert record_of(post, reader, 5, 0.0).actor is None
    lane.learner_bell.close()
    lane.close()
