"""The shared memory between the learner and one actor's process: counters, and a ring of samples.

The learner owns one channel per actor and every process of that actor writes to the same one. One
writer, one reader, no lock: every word has one writer at a time, and integers of 8 bytes at their
own alignment are written at once, so no reader sees half of one. What a message consists of is
there once the number of messages says so, which is the last store; a writer that is killed before
leaves nothing that is ever read. The learner reads transitions in place and frees their space
later.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from border_cli.actor_manager.actor import Message
from border_cli.core.returns import Moments
from border_cli.core.rows import (
    Rows,
    column_of,
    columns_of,
    concatenate,
    row_dtypes,
    row_fields,
    transitions_of,
)
from border_cli.core.spaces import EnvSpec
from border_cli.core.timing import ACTOR_SECTIONS
from border_cli.core.types import Episode, Experience, Transitions, map_array
from border_cli.process.shared_memory import SharedArrays, WakePipe, fence, floats, integers

# Words that the learner writes.
GRANTED: Final = 0  # samples that the actor may have made in all
READ: Final = 1  # messages whose space is free again
CLOSING: Final = 2  # 1: send what was gathered and end
LEARNER_WAITS: Final = 3  # 1: wake the learner for news
LEARNER_WORDS: Final = 8

# Words that the actor writes (its supervisor, while it has no process).
MADE: Final = 0  # samples made, those of a killed process taken back
WRITTEN: Final = 1  # messages
ENV_STEPS: Final = 2
BEATS: Final = 3
WAITS: Final = 4  # for what: one of the next three
LOST_STEPS: Final = 5  # env steps that no message will count
LOST: Final = 6  # samples that died with a process
ACTOR_WORDS: Final = 8

NOTHING: Final = 0
BUDGET: Final = 1
SPACE: Final = 2

WAITS_FOR: Final = {
    BUDGET: "the rate limiter (trainer.samples_per_opt_step)",
    SPACE: "space in its ring buffer",
}

# A message has four integers; all but the opt steps count from the first message on.
ROWS: Final = 0
STEPS: Final = 1
EPISODES: Final = 2
OPT_STEPS: Final = 3
HEADER: Final = 4
MESSAGES: Final = 64  # in flight at most
EPISODE: Final = 2  # numbers per episode: score, length; what its `info` said follows
RETURNS: Final = 3  # numbers of running returns per message: count, mean, squares

_LOOK_AGAIN_S = 1.0  # a wait without a limit could outlive a lost wake-up


class SharedChannel:
    """Owned by the manager, which closes it. Picklable on the way into a child process only."""

    def __init__(
        self, spec: EnvSpec, *, capacity: int, learner_pipe: WakePipe, returns: bool = False
    ) -> None:
        """`returns`: messages carry the moments of running returns; else there is no space for
        them."""
        self.capacity = capacity  # rows
        self.pipe = WakePipe()  # wakes the actor
        self.learner_pipe = learner_pipe
        self._spec = spec
        self.episode = EPISODE + len(spec.info_metrics)  # numbers per episode
        whole, real = np.dtype(np.int64), np.dtype(np.float64)
        self._shared = SharedArrays(
            [
                (whole, (LEARNER_WORDS,)),
                (whole, (ACTOR_WORDS,)),
                (real, (len(ACTOR_SECTIONS),)),
                (whole, (MESSAGES * HEADER,)),
                (real, (capacity * self.episode,)),
                *((dtype, (capacity,)) for dtype in row_dtypes(row_fields(spec))),
                (real, (MESSAGES * RETURNS * returns,)),
            ]
        )
        self._map()

    def _map(self) -> None:
        learner, actor, seconds, headers, episodes, *blocks, returns = self._shared.arrays
        self.learner, self.actor = integers(learner), integers(actor)
        self.seconds = floats(seconds)
        self.headers, self.episodes = integers(headers), floats(episodes)
        self.returns = floats(returns)  # empty where the agent needs none
        left = iter(blocks)
        self.columns: dict[str, NDArray[Any]] = Rows(
            self._spec, self.capacity, lambda _count, _dtype: next(left)
        ).columns  # each [capacity, …]

    def header(self, messages: int) -> tuple[int, int, int, int]:
        """Rows, env steps, episodes and opt steps once so many messages were written."""
        if messages == 0:
            return 0, 0, 0, 0
        at = HEADER * ((messages - 1) % MESSAGES)
        rows, env_steps, episodes, opt_steps = self.headers[at : at + HEADER]
        return rows, env_steps, episodes, opt_steps

    def wake(self, waits_for: int) -> None:
        """Wakes the actor if it waits for this, which was written just now."""
        fence()  # it sees what was written before its wait is read here
        if self.actor[WAITS] == waits_for:
            self.pipe.wake()

    def counts(self) -> tuple[int, int]:
        """Samples that were made and not lost, and env steps, of all processes so far.

        A process counts its last step after it has sent its messages, env steps first. Both are of
        one moment: they are read again where samples were counted in between.
        """
        while True:
            written, sent_steps, _, _ = self.header(self.actor[WRITTEN])
            made = self.actor[MADE]
            fence()
            env_steps = max(self.actor[ENV_STEPS], sent_steps + self.actor[LOST_STEPS])
            fence()
            if made == self.actor[MADE]:
                return max(made, written), env_steps

    def reap(self) -> int:
        """Completes the counters of a process that has ended; returns the samples that it lost."""
        written, sent_steps, _, _ = self.header(self.actor[WRITTEN])
        made, env_steps = self.counts()
        self.actor[MADE], self.actor[ENV_STEPS] = written, env_steps
        self.actor[LOST] += made - written
        self.actor[LOST_STEPS] = env_steps - sent_steps
        self.actor[WAITS] = NOTHING
        return made - written

    def close(self) -> None:
        """Releases its memory and its pipe; its counters can still be read."""
        self.learner, self.actor, self.headers = (
            integers(np.array(each)) for each in (self.learner, self.actor, self.headers)
        )
        self.seconds = floats(np.array(self.seconds))
        self.episodes, self.columns = floats(np.empty(0)), {}
        self.returns = floats(np.empty(0))
        self._shared.close()
        self.pipe.close()

    def __getstate__(self) -> dict[str, Any]:
        return {
            "capacity": self.capacity,
            "episode": self.episode,
            "pipe": self.pipe,
            "learner_pipe": self.learner_pipe,
            "_spec": self._spec,
            "_shared": self._shared,
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._map()


def wait_for(channel: SharedChannel, what: int, is_over: Callable[[], bool]) -> float:
    """Sleeps until `is_over`, of which the learner wakes the actor; returns the seconds."""
    began_s = time.monotonic()
    channel.actor[WAITS] = what
    fence()  # the learner sees the wait from here on
    if channel.learner[LEARNER_WAITS]:
        channel.learner_pipe.wake()
    try:
        while not is_over():
            channel.pipe.wait(_LOOK_AGAIN_S)
    finally:
        channel.actor[WAITS] = NOTHING
    return time.monotonic() - began_s


class ChannelWriter:
    """The actor's end; continues behind what an earlier process of the same actor wrote."""

    def __init__(self, channel: SharedChannel) -> None:
        self._channel = channel
        self._messages = channel.actor[WRITTEN]
        self._rows, self._env_steps, self._episodes, _ = channel.header(self._messages)

    def send(self, message: Message) -> float:
        """Waits for space, in pieces where a message is larger than the ring; returns how long."""
        capacity = self._channel.capacity
        if message.rows <= capacity and len(message.episodes) <= capacity:
            return self._send(message)
        return sum(self._send(piece) for piece in pieces(message, capacity))

    def _send(self, message: Message) -> float:
        channel, rows, episodes = self._channel, message.rows, message.episodes
        waited_s = 0.0
        if not self._has_space(rows, len(episodes)):
            waited_s = wait_for(channel, SPACE, lambda: self._has_space(rows, len(episodes)))
        if rows:
            self._write_rows(self._rows % channel.capacity, message.parts, rows)
        for number, episode in enumerate(episodes, self._episodes):
            at = channel.episode * (number % channel.capacity)
            for place, value in enumerate(episode.numbers(channel.episode - EPISODE), at):
                channel.episodes[place] = value
        if channel.returns:
            self._write_returns(message.returns)
        at = HEADER * (self._messages % MESSAGES)
        self._rows += rows
        self._env_steps += message.env_steps
        self._episodes += len(episodes)
        self._messages += 1
        channel.headers[at + ROWS] = self._rows
        channel.headers[at + STEPS] = self._env_steps
        channel.headers[at + EPISODES] = self._episodes
        channel.headers[at + OPT_STEPS] = message.opt_steps
        fence()
        channel.actor[WRITTEN] = self._messages  # the one store that makes the message visible
        fence()
        if channel.learner[LEARNER_WAITS]:
            channel.learner_pipe.wake()
        return waited_s

    def _has_space(self, rows: int, episodes: int) -> bool:
        channel = self._channel
        read = channel.learner[READ]
        if self._messages - read >= MESSAGES - 1:  # the header of the last one read is kept
            return False
        rows_read, _, episodes_read, _ = channel.header(read)
        return (
            self._rows + rows - rows_read <= channel.capacity
            and self._episodes + episodes - episodes_read <= channel.capacity
        )

    def _write_rows(self, start: int, parts: list[Transitions], rows: int) -> None:
        columns, before_end = self._channel.columns, self._channel.capacity - start
        if rows <= before_end:
            for name, column in columns.items():
                np.concatenate(
                    column_of(parts, name), out=column[start : start + rows], casting="same_kind"
                )
            return
        whole = columns_of(concatenate(parts))
        for name, column in columns.items():
            column[start:] = whole[name][:before_end]
            column[: rows - before_end] = whole[name][before_end:]

    def _write_returns(self, returns: tuple[Moments, ...]) -> None:
        """A count of 0 where the message has none: an older one was in its place."""
        at = RETURNS * (self._messages % MESSAGES)
        numbers = self._channel.returns
        numbers[at] = 0
        for each in returns:
            numbers[at], numbers[at + 1], numbers[at + 2] = each.count, each.mean, each.squares


def pieces(message: Message, capacity: int) -> list[Message]:
    """The same rows and episodes in order, none of the pieces above `capacity`."""
    whole = concatenate(message.parts) if message.parts else None
    count = max(-(-message.rows // capacity), -(-len(message.episodes) // capacity))
    made = []
    for number in range(count):
        part = slice(number * capacity, (number + 1) * capacity)
        rows = [_sliced(whole, part)] if whole is not None and message.rows > part.start else []
        made.append(
            Message(
                actor_id=message.actor_id,
                opt_steps=message.opt_steps,
                env_steps=message.env_steps if number == 0 else 0,
                parts=rows,
                rows=sum(len(each) for each in rows),
                episodes=message.episodes[part],
                returns=message.returns if number == 0 else (),
            )
        )
    return made


def _sliced(transitions: Transitions, part: slice) -> Transitions:
    return Transitions(
        obs=map_array(lambda array: array[part], transitions.obs),
        action=transitions.action[part],
        reward=transitions.reward[part],
        discount=transitions.discount[part],
        next_obs=map_array(lambda array: array[part], transitions.next_obs),
    )


class ChannelReader:
    """The learner's end: what was taken stays readable until `release`."""

    def __init__(self, actor_id: int, channel: SharedChannel) -> None:
        self._actor_id = actor_id
        self._channel = channel
        self.messages = self._env_steps = self._episodes = 0  # taken
        self.rows = 0  # taken

    @property
    def has_news(self) -> bool:
        """Whether a message has arrived."""
        return bool(self._channel.actor[WRITTEN] != self.messages)

    @property
    def fill(self) -> float:
        """Share of the rows in use, 0 … 1."""
        channel = self._channel
        written = channel.header(channel.actor[WRITTEN])[ROWS]
        return (written - channel.header(channel.learner[READ])[ROWS]) / channel.capacity

    def take(self) -> list[Experience]:
        """All that arrived since the last call, as one message, or two where the ring begins anew.

        The arrays are the shared memory itself.
        """
        channel = self._channel
        written = channel.actor[WRITTEN]
        if written == self.messages:
            return []
        fence()
        rows, env_steps, episodes, opt_steps = channel.header(written)
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
        """The places of the next rows: whether it is the first one, start and end."""
        capacity = self._channel.capacity
        start = self.rows % capacity
        end = start + rows
        if end <= capacity:
            return [(True, start, end)]
        return [(True, start, capacity), (False, 0, end - capacity)]

    def _finished(self, episodes: int) -> tuple[Episode, ...]:
        channel = self._channel
        size = channel.episode
        places = [size * (each % channel.capacity) for each in range(self._episodes, episodes)]
        return tuple(Episode.of(channel.episodes[at : at + size]) for at in places)

    def _returns(self, written: int) -> tuple[Moments, ...]:
        numbers = self._channel.returns
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
            name: column[start:end] for name, column in self._channel.columns.items()
        }
        return Transitions(**transitions_of(views))

    def release(self) -> None:
        """Frees the space of all that was taken; wakes an actor that waits for it."""
        channel = self._channel
        if channel.learner[READ] == self.messages:
            return
        fence()  # after all reads
        channel.learner[READ] = self.messages
        channel.wake(SPACE)
