"""The learner's end of the way from an actor in another process: rows are read in place."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from border_cli.actor_manager.lane import (
    EPISODE,
    MESSAGES,
    READ,
    RETURNS,
    ROOM,
    ROWS,
    WRITTEN,
    Lane,
)
from border_cli.core.returns import Moments
from border_cli.core.rows import transitions_of
from border_cli.core.types import Episode, Experience, Transitions
from border_cli.process.memory import fence


class RingReader:
    """The learner's end: what was taken stays readable until `release`."""

    def __init__(self, actor_id: int, lane: Lane) -> None:
        self._actor_id = actor_id
        self._lane = lane
        self.messages = self._env_steps = self._episodes = 0  # taken
        self.rows = 0  # taken

    @property
    def has_news(self) -> bool:
        """Whether a whole message waits."""
        return bool(self._lane.actor[WRITTEN] != self.messages)

    @property
    def fill(self) -> float:
        """Share of the rows in use, 0 … 1."""
        lane = self._lane
        under_way = lane.header(lane.actor[WRITTEN])[ROWS] - lane.header(lane.learner[READ])[ROWS]
        return under_way / lane.capacity

    def take(self, written: int | None = None) -> list[Experience]:
        """All that arrived since the last call, as one message, or two where the ring begins anew.

        `written` leaves the messages behind that one where they are. The arrays are the shared
        memory itself.
        """
        lane = self._lane
        if written is None:
            written = lane.actor[WRITTEN]
        if written == self.messages:
            return []
        fence()
        rows, env_steps, episodes, opt_steps = lane.header(written)
        arrived = [
            Experience(
                actor_id=self._actor_id,
                opt_steps=opt_steps,
                env_steps=env_steps - self._env_steps if first else 0,
                transitions=self._view(start, end),
                episodes=self._finished(episodes) if first else (),
                returns=self._returns(written) if first else (),
            )
            for first, start, end in self._stretches(rows - self.rows)
        ]
        self.messages, self.rows = written, rows
        self._env_steps, self._episodes = env_steps, episodes
        return arrived

    def _stretches(self, rows: int) -> list[tuple[bool, int, int]]:
        """The places of the next rows: whether the first, start and end."""
        capacity = self._lane.capacity
        start = self.rows % capacity
        end = start + rows
        if end <= capacity:
            return [(True, start, end)]
        return [(True, start, capacity), (False, 0, end - capacity)]

    def _finished(self, episodes: int) -> tuple[Episode, ...]:
        lane = self._lane
        places = [EPISODE * (each % lane.capacity) for each in range(self._episodes, episodes)]
        return tuple(Episode(lane.episodes[at], int(lane.episodes[at + 1])) for at in places)

    def _returns(self, written: int) -> tuple[Moments, ...]:
        numbers = self._lane.returns
        if not numbers:
            return ()
        places = [RETURNS * (each % MESSAGES) for each in range(self.messages, written)]
        return tuple(
            Moments(count, numbers[at + 1], numbers[at + 2])
            for at in places
            if (count := int(numbers[at]))
        )

    def _view(self, start: int, end: int) -> Transitions:
        views: dict[str, NDArray[Any]] = {
            name: column[start:end] for name, column in self._lane.columns.items()
        }
        return Transitions(**transitions_of(views))

    def release(self) -> None:
        """Frees the place of all that was taken; wakes an actor that waits for it."""
        lane = self._lane
        if lane.learner[READ] == self.messages:
            return
        fence()  # after whatever was read
        lane.learner[READ] = self.messages
        lane.wake(ROOM)
