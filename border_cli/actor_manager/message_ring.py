"""A lock-free ring of messages in shared memory, with one writer and one reader process.

Every word, an aligned 8-byte integer, has one writer and is stored atomically, so a reader never
sees a partial value. A message becomes visible when the message count is increased, which is the
last store. If a writer is killed before that store, its incomplete message is never read. Messages
are contiguous: one that would wrap around the end of the ring, or that has more rows than the ring,
is split into several.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from border_cli.actor_manager.actor import Message
from border_cli.actor_manager.mapped import Mapped
from border_cli.core.returns import Moments
from border_cli.core.rows import (
    Rows,
    column_of,
    concatenate,
    row_columns,
    row_dtypes,
    slice_rows,
    transitions_of,
)
from border_cli.core.spaces import EnvSpec
from border_cli.core.types import Column, Episode, Experience, Form, Transitions
from border_cli.system.shared_memory import SharedArrays, fence, floats, integers

EPISODE_NUMBERS: Final = 2  # numbers per episode before its `info` metrics: score, length
RETURNS_NUMBERS: Final = 3  # numbers per message for running returns: count, mean, squares

# Layout of a header of five integers; the first three are totals over all messages so far.
ROWS: Final = 0
STEPS: Final = 1
EPISODES: Final = 2
OPT_STEPS: Final = 3
ACTOR: Final = 4
HEADER: Final = 5


class MessageRing(Mapped):
    """The memory shared by the writer and the reader; the owner closes it.

    `more` describes additional arrays that the owner stores in the same segment.
    """

    pickled = ("capacity", "messages", "numbers_per_episode", "_columns", "_shared")

    def __init__(
        self,
        spec: EnvSpec,
        *,
        capacity: int,
        messages: int,
        extras: Sequence[Column] = (),
        returns: bool = False,
        more: Sequence[Form] = (),
    ) -> None:
        """`extras`: columns in addition to the standard ones; `returns`: whether to allocate space
        for the moments of running returns."""
        self.capacity = capacity  # maximum number of rows, and of episodes
        self.messages = messages  # number of headers; one is reserved for the last message read
        self.numbers_per_episode = EPISODE_NUMBERS + len(spec.info_metrics)
        self._columns = row_columns(spec, extras)
        int64, float64 = np.dtype(np.int64), np.dtype(np.float64)
        self._shared = SharedArrays(
            [
                (int64, (1,)),
                (int64, (1,)),
                (int64, (messages * HEADER,)),
                (float64, (capacity * self.numbers_per_episode,)),
                (float64, (messages * RETURNS_NUMBERS * returns,)),
                *((dtype, (capacity,)) for dtype in row_dtypes(self._columns)),
                *more,
            ]
        )
        self._map()

    def _map(self) -> None:
        written, read, headers, episodes, returns, *rest = self._shared.arrays
        self.written = integers(written)  # [0]: messages written; set by the writer
        self.read = integers(read)  # [0]: messages released; set by the reader
        self.headers = integers(headers)
        self.episodes, self.returns = floats(episodes), floats(returns)
        blocks = len(row_dtypes(self._columns))
        self.more = rest[blocks:]
        self.columns: dict[str, NDArray[Any]] = Rows(self._columns, rest[:blocks]).columns

    def header(self, messages: int) -> tuple[int, int, int]:
        """Returns the total rows, env steps and episodes of the first `messages` messages."""
        if messages == 0:
            return 0, 0, 0
        offset = HEADER * ((messages - 1) % self.messages)
        rows, env_steps, episodes = self.headers[offset : offset + 3]
        return rows, env_steps, episodes

    @property
    def rows_in_flight(self) -> int:
        """Rows written but not released yet."""
        return self.header(self.written[0])[ROWS] - self.header(self.read[0])[ROWS]

    @property
    def fill(self) -> float:
        """Fraction of the rows in use, between 0 and 1."""
        return self.rows_in_flight / self.capacity

    def close(self) -> None:
        """Releases the memory, which is freed together with the last view of it."""
        self._shared.close()


class MessageWriter:
    """The writing end of a ring; continues after the last message of an earlier process."""

    def __init__(self, ring: MessageRing) -> None:
        self._ring = ring
        self._messages = ring.written[0]
        self._rows, self._env_steps, self._episodes = ring.header(self._messages)

    def has_space(self, message: Message) -> bool:
        """Returns whether there is space for the first piece of a message."""
        ring, read = self._ring, self._ring.read[0]
        if self._messages - read >= ring.messages - 1:  # one header is reserved
            return False
        rows, episodes = self._first_piece(message)
        rows_read, _, episodes_read = ring.header(read)
        return (
            self._rows + rows - rows_read <= ring.capacity
            and self._episodes + episodes - episodes_read <= ring.capacity
        )

    def _first_piece(self, message: Message) -> tuple[int, int]:
        """Returns how many rows and episodes of a message fit into one contiguous piece."""
        capacity = self._ring.capacity
        rows = min(message.rows, capacity - self._rows % capacity)
        return rows, min(len(message.episodes), capacity)

    def write(self, message: Message) -> Message | None:
        """Writes the first piece of a message if there is space; returns the rest, or None.

        The first piece includes all env steps and running returns.
        """
        if not self.has_space(message):
            return message
        ring, (rows, episodes) = self._ring, self._first_piece(message)
        rest = None
        if rows < message.rows or episodes < len(message.episodes):
            message, rest = split(message, rows, episodes)
        if rows:
            start = self._rows % ring.capacity
            for name, column in ring.columns.items():
                # same_kind: allows float64 to float32, but raises for float to uint8
                target = column[start : start + rows]
                np.concatenate(column_of(message.parts, name), out=target, casting="same_kind")
        for number, episode in enumerate(message.episodes, self._episodes):
            base = ring.numbers_per_episode * (number % ring.capacity)
            for index, value in enumerate(
                episode.numbers(ring.numbers_per_episode - EPISODE_NUMBERS), base
            ):
                ring.episodes[index] = value
        if returns := ring.returns:
            base = RETURNS_NUMBERS * (self._messages % ring.messages)
            returns[base] = 0  # clears the count of an earlier message
            for m in message.returns:
                returns[base], returns[base + 1], returns[base + 2] = m.count, m.mean, m.squares
        self._write_header(message)
        return rest

    def _write_header(self, message: Message) -> None:
        ring, offset = self._ring, HEADER * (self._messages % self._ring.messages)
        self._rows += message.rows
        self._env_steps += message.env_steps
        self._episodes += len(message.episodes)
        self._messages += 1
        ring.headers[offset + ROWS] = self._rows
        ring.headers[offset + STEPS] = self._env_steps
        ring.headers[offset + EPISODES] = self._episodes
        ring.headers[offset + OPT_STEPS] = message.opt_steps
        ring.headers[offset + ACTOR] = message.actor_id
        fence()
        ring.written[0] = self._messages  # this store makes the message visible
        fence()


def split(message: Message, rows: int, episodes: int) -> tuple[Message, Message]:
    """Splits a message after the first `rows` rows and `episodes` episodes.

    All env steps and running returns stay with the first part.
    """
    block = concatenate(message.parts) if message.parts else None

    def parts(start: int, end: int) -> list[Transitions]:
        return [slice_rows(block, slice(start, end))] if block is not None and start < end else []

    first = replace(message, parts=parts(0, rows), rows=rows, episodes=message.episodes[:episodes])
    rest = replace(
        message,
        env_steps=0,
        parts=parts(rows, message.rows),
        rows=message.rows - rows,
        episodes=message.episodes[episodes:],
        returns=(),
    )
    return first, rest


class MessageReader:
    """The reading end of a ring; messages stay readable until `release`."""

    def __init__(self, ring: MessageRing) -> None:
        self._ring = ring
        self._messages = 0  # messages read
        self.rows: Counter[int] = Counter()  # rows read, by actor id

    @property
    def has_news(self) -> bool:
        """True if there are unread messages."""
        return bool(self._ring.written[0] != self._messages)

    def take(self) -> list[Experience]:
        """Returns all messages since the last call; their arrays are views of shared memory."""
        written = self._ring.written[0]
        if written == self._messages:
            return []
        fence()
        arrived = [self._read(number) for number in range(self._messages, written)]
        self._messages = written
        return arrived

    def _read(self, number: int) -> Experience:
        """Reads message `number`, counting from 0."""
        ring, offset = self._ring, HEADER * (number % self._ring.messages)
        rows_before, steps_before, episodes_before = ring.header(number)
        rows, env_steps, episodes, opt_steps, actor_id = ring.headers[offset : offset + HEADER]
        rows -= rows_before
        self.rows[actor_id] += rows
        start = rows_before % ring.capacity if rows else 0
        numbers = range(episodes_before, episodes)
        starts = [ring.numbers_per_episode * (episode % ring.capacity) for episode in numbers]
        views = {name: column[start : start + rows] for name, column in ring.columns.items()}
        return Experience(
            actor_id=actor_id,
            opt_steps=opt_steps,
            env_steps=env_steps - steps_before,
            transitions=transitions_of(views),
            episodes=tuple(
                Episode.of(ring.episodes[i : i + ring.numbers_per_episode]) for i in starts
            ),
            returns=self._read_returns(number),
        )

    def _read_returns(self, number: int) -> tuple[Moments, ...]:
        numbers, offset = self._ring.returns, RETURNS_NUMBERS * (number % self._ring.messages)
        if not numbers or not numbers[offset]:
            return ()
        return (Moments(int(numbers[offset]), numbers[offset + 1], numbers[offset + 2]),)

    def release(self) -> bool:
        """Frees the space of all messages read; returns whether there were any."""
        if self._ring.read[0] == self._messages:
            return False
        fence()  # completes all reads before the space is freed
        self._ring.read[0] = self._messages
        return True
