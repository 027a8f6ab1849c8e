"""The learner's end of the ways from all actors in other processes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from border_cli.actor_manager.lane import BUILT, LEARNER_WAITS
from border_cli.actor_manager.notes import is_answered, written_by_then
from border_cli.actor_manager.post import Post
from border_cli.actor_manager.ring_reader import RingReader
from border_cli.core.rows import columns_of, transitions_of
from border_cli.core.types import Experience, Transitions
from border_cli.process.memory import fence


class Arrivals:
    """Takes what the actors wrote, in the order of their ids; owned by the learner's thread."""

    def __init__(self, posts: Sequence[Post]) -> None:
        self._lanes = [post.lane for post in posts]
        self.readers = [RingReader(post.actor_id, post.lane) for post in posts]
        self._unreleased = False

    @property
    def has_news(self) -> bool:
        """Whether a whole message waits."""
        return any(reader.has_news for reader in self.readers)

    @property
    def fill(self) -> float:
        """Share of the room in use, 0 … 1."""
        return sum(reader.fill for reader in self.readers) / len(self.readers)

    def take(self) -> list[Experience]:
        """All that arrived; readable until `release`."""
        arrived: list[Experience] = []
        for reader in self.readers:
            if reader.has_news:
                arrived += reader.take(None)
        self._unreleased |= bool(arrived)
        return arrived

    def take_copies(self, question: int | None = None) -> list[Experience]:
        """The same in memory of its own, its place free again; of an actor that has answered the
        question only what it had written by then."""
        copies = [
            _copied(each)
            for reader, lane in zip(self.readers, self._lanes, strict=True)
            for each in reader.take(written_by_then(lane, question))
        ]
        self._unreleased = True
        self.release()
        return copies

    def release(self) -> None:
        """Frees the place of all that was taken."""
        if self._unreleased:
            self._unreleased = False
            for reader in self.readers:
                reader.release()

    def may_answer(self, question: int) -> bool:
        """Whether an actor lives that has not answered the question."""
        return any(lane.actor[BUILT] and not is_answered(lane, question) for lane in self._lanes)

    @contextmanager
    def awaited(self) -> Iterator[None]:
        """Within the block the actors ring the learner's bell on news."""
        self._tell_waiting(1)
        try:
            yield
        finally:
            self._tell_waiting(0)

    def _tell_waiting(self, waiting: int) -> None:
        for lane in self._lanes:
            lane.learner[LEARNER_WAITS] = waiting
        fence()  # what is written from here on rings, and what was written before is seen


def _copied(message: Experience) -> Experience:
    columns = {name: column.copy() for name, column in columns_of(message.transitions).items()}
    return replace(message, transitions=Transitions(**transitions_of(columns)))
