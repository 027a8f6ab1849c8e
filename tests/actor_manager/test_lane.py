"""What a killed process leaves in its lane, and how it is settled."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from multiprocessing.connection import wait

import pytest
from lanes import assert_same_rows, lane_of, parcel_of

from border_cli.actor_manager import lane as words
from border_cli.actor_manager.actor_record import ActorRecord
from border_cli.actor_manager.lane import Lane
from border_cli.actor_manager.notes import (
    LAST,
    Note,
    answer,
    ask,
    is_answered,
    read_note,
    written_by_then,
)
from border_cli.actor_manager.ring_reader import RingReader
from border_cli.actor_manager.ring_writer import RingWriter
from border_cli.core.returns import Moments
from border_cli.core.types import Episode


@pytest.fixture
def lane() -> Iterator[Lane]:
    made = lane_of("vector", capacity=8)
    yield made
    made.learner_bell.close()
    made.close()


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


class DyingLane:
    """A lane whose writer is killed at its k-th store."""

    def __init__(self, lane: Lane, stores: int) -> None:
        fuse = [stores]
        self._lane = lane
        self.capacity, self.columns = lane.capacity, lane.columns
        self.learner, self.bell, self.learner_bell = lane.learner, lane.bell, lane.learner_bell
        self.header, self.note = lane.header, lane.note
        self.actor = DyingWords(lane.actor, fuse)
        self.headers = DyingWords(lane.headers, fuse)
        self.episodes = DyingWords(lane.episodes, fuse)
        self.returns = DyingWords(lane.returns, fuse)


@pytest.mark.parametrize("returns", [(), (Moments(6, 0.5, 2.0),)], ids=["", "returns"])
def test_a_writer_that_dies_at_any_store_leaves_nothing_half(returns: tuple[Moments, ...]) -> None:
    episodes = (Episode(1.0, 2), Episode(3.0, 4))
    stores = 4 + 4 + 1  # of the two episodes, of the header, of the count
    stores += 4 * len(returns)  # none, count, mean, squares
    for survived in range(stores + 1):
        lane = lane_of("vector", capacity=8, returns=bool(returns))
        reader = RingReader(0, lane)
        RingWriter(lane).put(parcel_of("vector", 0, 5))
        reader.take()
        reader.release()
        dying = RingWriter(DyingLane(lane, survived))  # type: ignore[arg-type]
        whole = survived == stores
        try:
            dying.put(replace(parcel_of("vector", 100, 6, episodes=episodes), returns=returns))
            assert whole
        except Killed:
            assert not whole
        arrived = reader.take()
        assert sum(len(each.transitions) for each in arrived) == (6 if whole else 0)
        assert [each.episodes for each in arrived] == ([episodes, ()] if whole else [])
        assert [each.returns for each in arrived] == ([returns, ()] if whole else [])
        reader.release()
        lane.bury()
        RingWriter(lane).put(parcel_of("vector", 5, 7, episodes=(Episode(9.0, 9),)))
        arrived = reader.take()
        assert_same_rows("vector", arrived, 5, 12)
        assert sum((each.episodes for each in arrived), ()) == (Episode(9.0, 9),)
        assert not any(each.returns for each in arrived)
        lane.learner_bell.close()
        lane.close()


def test_a_burial_counts_what_was_made_and_never_written(lane: Lane) -> None:
    writer = RingWriter(lane)
    lane.actor[words.MADE] = 7
    lane.actor[words.ENV_STEPS] = 9
    lane.actor[words.WAITS] = words.ROOM
    writer.put(parcel_of("vector", 0, 5))
    assert lane.bury() == 2
    assert lane.actor[words.MADE] == 5
    assert lane.actor[words.WAITS] == words.NOTHING
    assert lane.bury() == 0  # once only


def test_one_that_died_after_its_message_and_before_its_own_count_lost_nothing(lane: Lane) -> None:
    RingWriter(lane).put(parcel_of("vector", 0, 5))  # six env steps
    lane.actor[words.MADE], lane.actor[words.ENV_STEPS] = 4, 5
    assert lane.bury() == 0
    assert (lane.actor[words.MADE], lane.actor[words.ENV_STEPS]) == (5, 6)
    # The next one makes two samples that it never sends, the one after it dies as the first did.
    lane.actor[words.MADE], lane.actor[words.ENV_STEPS] = 7, 8
    assert lane.bury() == 2
    RingWriter(lane).put(parcel_of("vector", 5, 3))  # four env steps
    assert lane.bury() == 0
    assert (lane.actor[words.MADE], lane.actor[words.ENV_STEPS]) == (8, 12)


def _note(messages: int, life: int = 0) -> Note:
    return Note(life=life, messages=messages, env_steps=9, lost=0, actor={"env": {"count": 9}})


def test_an_actor_that_dies_at_any_store_of_its_answer_has_answered_wholly_or_not(
    lane: Lane,
) -> None:
    answer(lane, 1, _note(0))
    RingWriter(lane).put(parcel_of("vector", 0, 5))
    stores = 3  # not whole, the mark, the answer
    for survived in range(stores + 1):
        question = 2 + survived
        dying = DyingLane(lane, survived)
        try:
            answer(dying, question, _note(1, life=survived))  # type: ignore[arg-type]
            assert survived == stores
        except Killed:
            assert survived < stores
        note = read_note(lane, question)
        assert (note is not None) == (survived == stores)
        assert written_by_then(lane, question) == 1
        # What it told before is no answer either, once that note is being written over.
        assert read_note(lane, question - 1) is None or survived == 0


def test_an_answer_tells_what_was_written_by_then_from_what_came_behind(lane: Lane) -> None:
    writer, reader = RingWriter(lane), RingReader(0, lane)
    writer.put(parcel_of("vector", 0, 2))
    assert written_by_then(lane, 7) == 1
    answer(lane, 7, _note(1))
    writer.put(parcel_of("vector", 2, 3))
    assert written_by_then(lane, 7) == 1
    assert written_by_then(lane, 8) == 2  # nobody has answered that
    assert_same_rows("vector", reader.take(1), 0, 2)
    assert reader.take(1) == []
    assert read_note(lane, 7) == _note(1)
    assert read_note(lane, None) is None
    assert_same_rows("vector", reader.take(), 2, 5)


def test_a_note_that_is_written_over_while_it_is_read_is_not_taken(lane: Lane) -> None:
    answer(lane, 3, _note(0))
    real = lane.note

    class Overtaken:
        def read(self) -> bytes:
            text = real.read()
            answer(lane, LAST, _note(0, life=5))
            return text

        def write(self, text: bytes) -> None:
            real.write(text)

        close = real.close

    lane.note = Overtaken()  # type: ignore[assignment]
    assert read_note(lane, 3) is None
    lane.note = real
    assert read_note(lane, LAST) == _note(0, life=5)


def test_an_answer_without_room_for_its_note_is_an_answer_all_the_same(lane: Lane) -> None:
    lane.note.write(b"")
    answer(lane, 3, _note(0))
    lane.note.write(b"")  # what a system without memory leaves
    assert is_answered(lane, 3)
    assert read_note(lane, 3) is None


@pytest.mark.parametrize(("waits", "rings"), [(words.PERMISSION, 1), (words.NOTHING, 0)])
def test_a_question_wakes_who_waits_for_permission(lane: Lane, waits: int, rings: int) -> None:
    lane.actor[words.WAITS] = waits
    ask(lane, 4)
    assert lane.learner[words.ASKED] == 4
    assert len(wait([lane.bell.fileno()], 0)) == rings


@pytest.mark.parametrize(("waits", "rings"), [(1, 1), (0, 0)])
def test_an_answer_rings_for_a_learner_that_waits(lane: Lane, waits: int, rings: int) -> None:
    lane.learner[words.LEARNER_WAITS] = waits
    answer(lane, 4, _note(0))
    assert len(wait([lane.learner_bell.fileno()], 0)) == rings


RESUMED = ActorRecord(
    actor_id=0, life=2, env_steps=50, samples=40, lost=6, restarted_episodes=1,
    seconds=[1.0, 2.0, 3.0, 4.0, 5.0], balance=7,
    actor={"proxy": {"columns": {"reward": [0.0] * 3}, "env_steps": 4, "episodes": []}},
)  # fmt: skip


def test_what_was_gathered_before_a_resume_is_counted_once(lane: Lane) -> None:
    lane.resume(RESUMED)
    writer = RingWriter(lane)
    writer.put(parcel_of("vector", 0, 3))  # four env steps: those of the proxy
    assert lane.bury() == 0
    assert (lane.actor[words.ENV_STEPS], lane.actor[words.LOST]) == (50, 6)
    writer.put(parcel_of("vector", 3, 2))  # three that it did not live to count
    assert lane.bury() == 0
    assert (lane.actor[words.ENV_STEPS], lane.actor[words.MADE]) == (53, 5)


def test_a_resumed_lane_counts_on_and_its_unsent_rows_die_with_its_process(lane: Lane) -> None:
    lane.resume(RESUMED)
    assert lane.actor[words.MADE] == lane.learner[words.GRANTED] == 3
    assert list(lane.seconds) == RESUMED.seconds
    assert lane.bury() == 3
    assert (lane.actor[words.ENV_STEPS], lane.actor[words.LOST]) == (50, 9)
    # The next one makes two samples, sends them, and dies before it counts them.
    RingWriter(lane).put(parcel_of("vector", 0, 2))  # three env steps
    assert lane.bury() == 0
    assert (lane.actor[words.ENV_STEPS], lane.actor[words.LOST]) == (53, 9)
    assert lane.actor[words.RESTARTED] == 1
