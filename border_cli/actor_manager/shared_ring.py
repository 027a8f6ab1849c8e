"""The shared memory between the learner and the broker of a cluster: one ring for all actors.

The broker writes what the actors returned, the learner reads transitions in place and frees their
space later. As in `shared_channel.py`, every word has one writer, there is no lock, and a message
is there once the number of messages says so. Each message is of one actor and lies in one piece.
"""

from __future__ import annotations

from collections import deque
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from border_cli.actor_manager.remote_actor import Answer
from border_cli.core.returns import Moments
from border_cli.core.rows import Rows, row_dtypes, row_fields, transitions_of
from border_cli.core.spaces import EnvSpec
from border_cli.core.timing import ACTOR_SECTIONS
from border_cli.core.types import Episode, Experience, Transitions
from border_cli.process.shared_memory import SharedArrays, WakePipe, fence, floats, integers

# Words that the learner writes.
READ: Final = 0  # messages whose space is free again
CLOSING: Final = 1  # 1: return what is under way and end
LEARNER_WAITS: Final = 2  # 1: wake the learner for news
LAST: Final = 3  # 1: the permission no longer grows
LEAVING: Final = 4  # 1: leave the cluster, once all has ended
LEARNER_WORDS: Final = 8

# Words that the broker writes.
WRITTEN: Final = 0  # messages
GRANTED: Final = 1  # samples of the permission that are used up
BEATS: Final = 2
DRAINED: Final = 3  # 1: nothing more will arrive
ACTING: Final = 4  # actors
SPACE_WAITS: Final = 5  # 1: it waits for space in the ring
BROKER_WORDS: Final = 8

# Words of each actor, which the broker writes.
ROWS: Final = 0  # samples that arrived
SURPLUS: Final = 1  # env steps that arrived, less the samples that arrived with them
LOST: Final = 2  # samples that never will arrive
RESTARTS: Final = 3
INCARNATIONS: Final = 4  # that were started in this attempt
ACTOR_WORDS: Final = 8

# A message has six integers.
ACTOR: Final = 0
M_ROWS: Final = 1
M_STEPS: Final = 2
M_EPISODES: Final = 3
M_OPT_STEPS: Final = 4
M_RETURNS: Final = 5  # 1: it has moments
HEADER: Final = 8

EPISODE: Final = 2  # numbers per episode: score, length; what its `info` said follows
RETURNS: Final = 3  # numbers of running returns per message: count, mean, squares
NETWORK: Final = ("call", "transfer", "queue")  # where the time of calls goes


class SharedRing:
    """Owned by the manager, which closes it. Picklable on the way into a child process only."""

    def __init__(
        self, spec: EnvSpec, *, capacity: int, num_actors: int, returns: bool = False
    ) -> None:
        self.capacity = capacity  # rows; and episodes
        self.messages = 64 + 4 * num_actors  # in flight at most
        self.pipe = WakePipe()  # wakes the broker
        self.learner_pipe = WakePipe()
        self._spec = spec
        self.episode = EPISODE + len(spec.info_metrics)  # numbers per episode
        whole, real = np.dtype(np.int64), np.dtype(np.float64)
        self._shared = SharedArrays(
            [
                (whole, (LEARNER_WORDS,)),
                (real, (1,)),
                (whole, (BROKER_WORDS,)),
                (whole, (num_actors * ACTOR_WORDS,)),
                (real, (num_actors * len(ACTOR_SECTIONS),)),
                (real, (len(NETWORK),)),
                (whole, (self.messages * HEADER,)),
                (real, (capacity * self.episode,)),
                (real, (self.messages * RETURNS * returns,)),
                *((dtype, (capacity,)) for dtype in row_dtypes(row_fields(spec))),
            ]
        )
        self._map()

    def _map(self) -> None:
        learner, permitted, broker, actors, seconds, network, *rest = self._shared.arrays
        headers, episodes, returns, *self.blocks = rest
        self.learner, self.broker = integers(learner), integers(broker)
        self.permitted = floats(permitted)  # samples in all
        self.actors, self.headers = integers(actors), integers(headers)
        self.seconds, self.network = floats(seconds), floats(network)
        self.episodes, self.returns = floats(episodes), floats(returns)
        left = iter(self.blocks)
        self.columns: dict[str, NDArray[Any]] = Rows(
            self._spec, self.capacity, lambda _count, _dtype: next(left)
        ).columns  # each [capacity, …]

    def close(self) -> None:
        """Releases its memory and its pipes; its counters can still be read."""
        self.learner, self.broker, self.actors = (
            integers(np.array(each)) for each in (self.learner, self.broker, self.actors)
        )
        self.permitted, self.seconds, self.network = (
            floats(np.array(each)) for each in (self.permitted, self.seconds, self.network)
        )
        self.headers = integers(np.empty(0, np.int64))
        self.episodes = self.returns = floats(np.empty(0))
        self.blocks, self.columns = [], {}
        self._shared.close()
        self.pipe.close()
        self.learner_pipe.close()

    def __getstate__(self) -> dict[str, Any]:
        names = ("capacity", "episode", "messages", "pipe", "learner_pipe", "_spec", "_shared")
        return {name: getattr(self, name) for name in names}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._map()


class RingWriter:
    """The broker's end. What finds no space waits here, in order; `space` is what is left."""

    def __init__(self, ring: SharedRing) -> None:
        self._ring = ring
        self._messages = self._rows = self._episodes = 0  # written
        self._read = self._rows_read = self._episodes_read = 0
        self._ends: deque[tuple[int, int]] = deque()  # rows, episodes behind each unread message
        self._pending: deque[_Pending] = deque()
        self._pending_rows = 0

    @property
    def space(self) -> int:
        """Rows that can still be taken in; below 0 where too many arrived."""
        self._free_read()
        return self._ring.capacity - (self._rows - self._rows_read) - self._pending_rows

    def put(self, actor_id: int, answer: Answer) -> None:
        """Takes in what an actor returned."""
        if answer.env_steps or answer.rows:
            self._pending.append(_Pending(actor_id, answer))
            self._pending_rows += answer.rows

    @property
    def waits_for_space(self) -> bool:
        """Whether something was not written."""
        return bool(self._pending)

    def write(self) -> None:
        """Writes what there is space for, and wakes a learner that waits."""
        before = self._messages
        while self._pending and self._write_piece(self._pending[0]):
            if self._pending[0].is_written:
                self._pending.popleft()
        if self._messages > before:
            fence()
            self._ring.broker[WRITTEN] = self._messages  # makes the messages visible
            fence()
            if self._ring.learner[LEARNER_WAITS]:
                self._ring.learner_pipe.wake()

    def _free_read(self) -> None:
        while self._read < self._ring.learner[READ]:
            self._rows_read, self._episodes_read = self._ends.popleft()
            self._read += 1

    def _write_piece(self, pending: _Pending) -> bool:
        """Writes as much of it as there is space for in one piece; False if there is none."""
        self._free_read()
        ring, answer = self._ring, pending.answer
        if self._messages - self._read >= ring.messages:
            return False
        start = self._rows % ring.capacity
        free = min(ring.capacity - start, ring.capacity - (self._rows - self._rows_read))
        rows = min(answer.rows - pending.rows, free)
        left = len(answer.episodes) - pending.episodes if answer.episodes is not None else 0
        episodes = min(left, ring.capacity - (self._episodes - self._episodes_read))
        if (rows == 0 and pending.rows < answer.rows) or (episodes == 0 < left):
            return False
        for block, source in zip(ring.blocks, answer.blocks, strict=False):
            size = block.dtype.itemsize
            part = source[pending.rows * size : (pending.rows + rows) * size]
            block[start : start + rows] = part.view(block.dtype)
        for number in range(episodes):
            at = ring.episode * ((self._episodes + number) % ring.capacity)
            assert answer.episodes is not None
            for place, value in enumerate(answer.episodes[pending.episodes + number].tolist(), at):
                ring.episodes[place] = value
        self._write_header(pending, rows, episodes)
        pending.rows += rows
        pending.episodes += episodes
        pending.begun = True
        self._pending_rows -= rows
        return True

    def _write_header(self, pending: _Pending, rows: int, episodes: int) -> None:
        ring, answer, place = self._ring, pending.answer, self._messages % self._ring.messages
        at = HEADER * place
        ring.headers[at + ACTOR] = pending.actor_id
        ring.headers[at + M_ROWS] = rows
        before = pending.env_steps(pending.rows) if pending.begun else 0
        ring.headers[at + M_STEPS] = pending.env_steps(pending.rows + rows) - before
        ring.headers[at + M_EPISODES] = episodes
        ring.headers[at + M_OPT_STEPS] = answer.opt_steps
        returns = None if pending.begun else answer.returns
        ring.headers[at + M_RETURNS] = returns is not None
        if returns is not None:
            at = RETURNS * place
            ring.returns[at], ring.returns[at + 1], ring.returns[at + 2] = returns
        self._rows += rows
        self._episodes += episodes
        self._messages += 1
        self._ends.append((self._rows, self._episodes))


class _Pending:
    """An answer of which so much was written."""

    def __init__(self, actor_id: int, answer: Answer) -> None:
        self.actor_id = actor_id
        self.answer = answer
        self.rows = self.episodes = 0
        self.begun = False

    def env_steps(self, rows: int) -> int:
        """The env steps of its first rows: a learner that has a part has counted as many."""
        return max(0, self.answer.env_steps - self.answer.rows + rows)

    @property
    def is_written(self) -> bool:
        episodes = self.answer.episodes
        return self.rows == self.answer.rows and (
            episodes is None or self.episodes == len(episodes)
        )


class RingReader:
    """The learner's end: what was taken stays readable until `release`."""

    def __init__(self, ring: SharedRing, num_actors: int) -> None:
        self._ring = ring
        self._messages = self._rows = self._episodes = 0  # taken
        self.rows = [0] * num_actors  # taken, of each actor

    @property
    def has_news(self) -> bool:
        """Whether a message has arrived."""
        return bool(self._ring.broker[WRITTEN] != self._messages)

    @property
    def fill(self) -> float:
        """Share of the messages' rows that were taken and not yet released, or wait, 0 … 1."""
        return min(
            1.0, (sum(self._ring.actors[ROWS::ACTOR_WORDS]) - self._rows) / self._ring.capacity
        )

    def take(self) -> list[Experience]:
        """All that arrived since the last call; the arrays are the shared memory itself."""
        written = self._ring.broker[WRITTEN]
        if written == self._messages:
            return []
        fence()
        arrived = [
            self._message(number % self._ring.messages) for number in range(self._messages, written)
        ]
        self._messages = written
        return arrived

    def _message(self, place: int) -> Experience:
        ring, at = self._ring, HEADER * place
        actor_id, rows, env_steps, episodes, opt_steps, returns = ring.headers[at : at + 6]
        start = self._rows % ring.capacity if rows else 0
        message = Experience(
            actor_id=actor_id,
            opt_steps=opt_steps,
            env_steps=env_steps,
            transitions=self._view(start, start + rows),
            episodes=self._finished(episodes) if episodes else (),
            returns=self._returns(place) if returns else (),
        )
        self._rows += rows
        self._episodes += episodes
        self.rows[actor_id] += rows
        return message

    def _view(self, start: int, end: int) -> Transitions:
        views = {name: column[start:end] for name, column in self._ring.columns.items()}
        return Transitions(**transitions_of(views))

    def _finished(self, count: int) -> tuple[Episode, ...]:
        ring = self._ring
        numbers = range(self._episodes, self._episodes + count)
        places = [ring.episode * (each % ring.capacity) for each in numbers]
        return tuple(Episode.of(ring.episodes[at : at + ring.episode]) for at in places)

    def _returns(self, place: int) -> tuple[Moments, ...]:
        at = RETURNS * place
        count, mean, squares = self._ring.returns[at : at + RETURNS]
        return (Moments(int(count), mean, squares),)

    def release(self) -> bool:
        """Frees the space of all that was taken; whether there was any."""
        if self._ring.learner[READ] == self._messages:
            return False
        fence()  # after all reads
        self._ring.learner[READ] = self._messages
        return True
