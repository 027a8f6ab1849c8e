"""What a killed process leaves in its lane, and how it is settled."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from lanes import assert_same_rows, lane_of, parcel_of

from border_cli.actor_manager import lane as words
from border_cli.actor_manager.lane import Lane
from border_cli.actor_manager.ring_reader import RingReader
from border_cli.actor_manager.ring_writer import RingWriter
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
        self.header = lane.header
        self.actor = DyingWords(lane.actor, fuse)
        self.headers = DyingWords(lane.headers, fuse)
        self.episodes = DyingWords(lane.episodes, fuse)


def test_a_writer_that_dies_at_any_store_leaves_nothing_half() -> None:
    episodes = (Episode(1.0, 2), Episode(3.0, 4))
    stores = 4 + 4 + 1  # of the two episodes, of the header, of the count
    for survived in range(stores + 1):
        lane = lane_of("vector", capacity=8)
        reader = RingReader(0, lane)
        RingWriter(lane).put(parcel_of("vector", 0, 5))
        reader.take()
        reader.release()
        dying = RingWriter(DyingLane(lane, survived))  # type: ignore[arg-type]
        whole = survived == stores
        try:
            dying.put(parcel_of("vector", 100, 6, episodes=episodes))
            assert whole
        except Killed:
            assert not whole
        arrived = reader.take()
        assert sum(len(each.transitions) for each in arrived) == (6 if whole else 0)
        assert [each.episodes for each in arrived] == ([episodes, ()] if whole else [])
        reader.release()
        lane.bury()
        RingWriter(lane).put(parcel_of("vector", 5, 7, episodes=(Episode(9.0, 9),)))
        arrived = reader.take()
        assert_same_rows("vector", arrived, 5, 12)
        assert sum((each.episodes for each in arrived), ()) == (Episode(9.0, 9),)
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
