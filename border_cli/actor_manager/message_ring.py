"""A ring of messages in memory that two processes see: one writes, the other reads in place.

There is no lock. Every word has one writer, and integers of 8 bytes at their own alignment are
written at once, so no reader sees half of one. A message is there once the number of messages says
so, which is the last store; a writer that is killed before leaves nothing that is ever read. Each
message lies in one piece: one that reaches the ring's end, or has more rows than fit, is written in
several.
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
    sliced,
    transitions_of,
)
from border_cli.core.spaces import EnvSpec
from border_cli.core.types import Column, Episode, Experience, Form, Transitions
from border_cli.system.shared_memory import SharedArrays, fence, floats, integers

EPISODE: Final = 2  # numbers per episode: score, length; what its `info` said follows
RETURNS: Final = 3  # numbers of running returns per message: count, mean, squares

# A header has five integers; the first three count from the first message on.
ROWS: Final = 0
STEPS: Final = 1
EPISODES: Final = 2
OPT_STEPS: Final = 3
ACTOR: Final = 4
HEADER: Final = 5


class MessageRing(Mapped):
    """The memory of both ends; its owner closes it.

    `more` arrays of its owner lie in the same segment.
    """

    crossing = ("capacity", "messages", "episode", "_columns", "_shared")

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
        """`extras`: columns beside those of all runs; `returns`: messages carry the moments of
        running returns; else they have no space."""
        self.capacity = capacity  # rows; and episodes
        self.messages = messages  # in flight, and the header of the last one read
        self.episode = EPISODE + len(spec.info_metrics)  # numbers per episode
        self._columns = row_columns(spec, extras)
        whole, real = np.dtype(np.int64), np.dtype(np.float64)
        self._shared = SharedArrays(
            [
                (whole, (1,)),
                (whole, (1,)),
                (whole, (messages * HEADER,)),
                (real, (capacity * self.episode,)),
                (real, (messages * RETURNS * returns,)),
                *((dtype, (capacity,)) for dtype in row_dtypes(self._columns)),
                *more,
            ]
        )
        self._map()

    def _map(self) -> None:
        written, read, headers, episodes, returns, *rest = self._shared.arrays
        self.written = integers(written)  # [0]: messages; the writer's word
        self.read = integers(read)  # [0]: messages whose space is free again; the reader's word
        self.headers = integers(headers)
        self.episodes, self.returns = floats(episodes), floats(returns)
        blocks = len(row_dtypes(self._columns))
        self.more = rest[blocks:]
        self.columns: dict[str, NDArray[Any]] = Rows(self._columns, rest[:blocks]).columns

    def header(self, messages: int) -> tuple[int, int, int]:
        """Rows, env steps and episodes once so many messages were written."""
        if messages == 0:
            return 0, 0, 0
        at = HEADER * ((messages - 1) % self.messages)
        rows, env_steps, episodes = self.headers[at : at + 3]
        return rows, env_steps, episodes

    @property
    def rows_in_flight(self) -> int:
        """Rows that were written and whose space is not free again."""
        return self.header(self.written[0])[ROWS] - self.header(self.read[0])[ROWS]

    @property
    def fill(self) -> float:
        """Share of the rows in use, 0 … 1."""
        return self.rows_in_flight / self.capacity

    def close(self) -> None:
        """Gives the memory up, which goes with the last view of it."""
        self._shared.close()


class MessageWriter:
    """The end that writes; continues behind what an earlier process wrote."""

    def __init__(self, ring: MessageRing) -> None:
        self._ring = ring
        self._messages = ring.written[0]
        self._rows, self._env_steps, self._episodes = ring.header(self._messages)

    def has_space(self, message: Message) -> bool:
        """Whether `write` would write anything of it."""
        ring, read = self._ring, self._ring.read[0]
        if self._messages - read >= ring.messages - 1:  # the header of the last one read is kept
            return False
        rows, episodes = self._first_piece(message)
        rows_read, _, episodes_read = ring.header(read)
        return (
            self._rows + rows - rows_read <= ring.capacity
            and self._episodes + episodes - episodes_read <= ring.capacity
        )

    def _first_piece(self, message: Message) -> tuple[int, int]:
        """Rows and episodes of it that lie in one piece."""
        capacity = self._ring.capacity
        rows = min(message.rows, capacity - self._rows % capacity)
        return rows, min(len(message.episodes), capacity)

    def write(self, message: Message) -> Message | None:
        """Writes what lies in one piece, where there is space; returns the rest, or None.

        All env steps and returns go with the first piece.
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
                # same_kind: float64 may become float32, but no float becomes a uint8 unnoticed
                target = column[start : start + rows]
                np.concatenate(column_of(message.parts, name), out=target, casting="same_kind")
        for number, episode in enumerate(message.episodes, self._episodes):
            at = ring.episode * (number % ring.capacity)
            for place, value in enumerate(episode.numbers(ring.episode - EPISODE), at):
                ring.episodes[place] = value
        if returns := ring.returns:
            at = RETURNS * (self._messages % ring.messages)
            returns[at] = 0  # the count; an older message was in its place
            for each in message.returns:
                returns[at], returns[at + 1], returns[at + 2] = each.count, each.mean, each.squares
        self._write_header(message)
        return rest

    def _write_header(self, message: Message) -> None:
        ring, at = self._ring, HEADER * (self._messages % self._ring.messages)
        self._rows += message.rows
        self._env_steps += message.env_steps
        self._episodes += len(message.episodes)
        self._messages += 1
        ring.headers[at + ROWS] = self._rows
        ring.headers[at + STEPS] = self._env_steps
        ring.headers[at + EPISODES] = self._episodes
        ring.headers[at + OPT_STEPS] = message.opt_steps
        ring.headers[at + ACTOR] = message.actor_id
        fence()
        ring.written[0] = self._messages  # the one store that makes the message visible
        fence()


def split(message: Message, rows: int, episodes: int) -> tuple[Message, Message]:
    """Its first so many rows and episodes, with all of its env steps and returns, and the rest."""
    whole = concatenate(message.parts) if message.parts else None

    def parts(start: int, end: int) -> list[Transitions]:
        return [sliced(whole, slice(start, end))] if whole is not None and start < end else []

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
    """The end that reads: what was taken stays readable until `release`."""

    def __init__(self, ring: MessageRing) -> None:
        self._ring = ring
        self._messages = 0  # taken
        self.rows: Counter[int] = Counter()  # taken, by actor id

    @property
    def has_news(self) -> bool:
        """Whether a message has arrived."""
        return bool(self._ring.written[0] != self._messages)

    def take(self) -> list[Experience]:
        """All that arrived since the last call; the arrays are the shared memory itself."""
        written = self._ring.written[0]
        if written == self._messages:
            return []
        fence()
        arrived = [self._message(number) for number in range(self._messages, written)]
        self._messages = written
        return arrived

    def _message(self, number: int) -> Experience:
        """The message before which so many were written."""
        ring, at = self._ring, HEADER * (number % self._ring.messages)
        rows_before, steps_before, episodes_before = ring.header(number)
        rows, env_steps, episodes, opt_steps, actor_id = ring.headers[at : at + HEADER]
        rows -= rows_before
        self.rows[actor_id] += rows
        start = rows_before % ring.capacity if rows else 0
        finished = range(episodes_before, episodes)
        places = [ring.episode * (each % ring.capacity) for each in finished]
        views = {name: column[start : start + rows] for name, column in ring.columns.items()}
        return Experience(
            actor_id=actor_id,
            opt_steps=opt_steps,
            env_steps=env_steps - steps_before,
            transitions=Transitions(**transitions_of(views)),
            episodes=tuple(Episode.of(ring.episodes[i : i + ring.episode]) for i in places),
            returns=self._returns(number),
        )

    def _returns(self, number: int) -> tuple[Moments, ...]:
        numbers, at = self._ring.returns, RETURNS * (number % self._ring.messages)
        if not numbers or not numbers[at]:
            return ()
        return (Moments(int(numbers[at]), numbers[at + 1], numbers[at + 2]),)

    def release(self) -> bool:
        """Frees the space of all that was taken; whether there was any."""
        if self._ring.read[0] == self._messages:
            return False
        fence()  # after all reads
        self._ring.read[0] = self._messages
        return True
