"""The channel between the learner and an actor process: counters and a ring of messages.

The learner owns one channel per actor, which all successive processes of that actor use. Like the
ring (`message_ring.py`), it has no locks, and every word has a single writer at a time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

import numpy as np

from border_cli.actor_manager.actor import Message
from border_cli.actor_manager.mapped import Mapped
from border_cli.actor_manager.message_ring import (
    ROWS,
    STEPS,
    MessageReader,
    MessageRing,
    MessageWriter,
)
from border_cli.core.spaces import EnvSpec
from border_cli.core.timing import ACTOR_SECTIONS
from border_cli.core.types import Column
from border_cli.system.shared_memory import WakePipe, fence, floats, integers

# Words written by the learner.
GRANTED: Final = 0  # samples that the actor may collect in total
CLOSING: Final = 1  # 1 if the actor should send its buffered samples and exit
LEARNER_WAITS: Final = 2  # 1 if the actor should wake the learner after a message
LEARNER_WORDS: Final = 8

# Words written by the actor, or by its supervisor while there is no process.
COLLECTED: Final = 0  # samples collected, except those lost with a process
ENV_STEPS: Final = 1
BEATS: Final = 2
WAITS: Final = 3  # NOTHING, BUDGET or SPACE
LOST_STEPS: Final = 4  # env steps that no message includes
LOST: Final = 5  # samples lost with a process
ACTOR_WORDS: Final = 8

NOTHING: Final = 0
BUDGET: Final = 1
SPACE: Final = 2

WAITS_FOR: Final = {
    BUDGET: "the rate limiter (trainer.samples_per_opt_step)",
    SPACE: "space in its ring buffer",
}

MESSAGES: Final = 64  # maximum number of messages in flight

_RECHECK_S = 1.0  # seconds between two checks of a condition, in case a wake-up is lost


class SharedChannel(Mapped):
    """The memory and pipes shared with an actor process; the manager owns and closes them."""

    pickled = ("pipe", "learner_pipe", "ring")

    def __init__(
        self,
        spec: EnvSpec,
        *,
        capacity: int,
        learner_pipe: WakePipe,
        extras: Sequence[Column] = (),
        returns: bool = False,
    ) -> None:
        """`capacity`: rows in the ring; `returns`: whether messages include running returns."""
        self.pipe = WakePipe()  # wakes the actor
        self.learner_pipe = learner_pipe
        int64, float64 = np.dtype(np.int64), np.dtype(np.float64)
        self.ring = MessageRing(
            spec,
            capacity=capacity,
            messages=MESSAGES,
            extras=extras,
            returns=returns,
            more=[
                (int64, (LEARNER_WORDS,)),
                (int64, (ACTOR_WORDS,)),
                (float64, (len(ACTOR_SECTIONS),)),
            ],
        )
        self._map()

    def _map(self) -> None:
        learner, actor, seconds = self.ring.more
        self.learner, self.actor, self.seconds = integers(learner), integers(actor), floats(seconds)

    def wake(self, waits_for: int) -> None:
        """Wakes the actor if it waits for `waits_for`. Call after making that available."""
        fence()  # earlier writes must be visible before the wait is read
        if self.actor[WAITS] == waits_for:
            self.pipe.wake()

    def wake_learner(self) -> None:
        """Wakes the learner if it is waiting. Call after every write that it may wait for."""
        if self.learner[LEARNER_WAITS]:
            self.learner_pipe.wake()

    def release(self, reader: MessageReader) -> None:
        """Frees the space of all messages read and wakes the actor if it waits for space."""
        if reader.release():
            self.wake(SPACE)

    def counts(self) -> tuple[int, int]:
        """Returns the samples collected and not lost, and the env steps, of all processes so far.

        A process sends its messages before it counts a step, and counts env steps before samples.
        If the sample count changes meanwhile, both are read again, so that they are consistent.
        """
        while True:
            sent = self.ring.header(self.ring.written[0])
            collected = self.actor[COLLECTED]
            fence()
            env_steps = max(self.actor[ENV_STEPS], sent[STEPS] + self.actor[LOST_STEPS])
            fence()
            if collected == self.actor[COLLECTED]:
                return max(collected, sent[ROWS]), env_steps

    def reap(self) -> int:
        """Completes the counters of a process that has exited and returns its lost samples."""
        sent = self.ring.header(self.ring.written[0])
        collected, env_steps = self.counts()
        self.actor[COLLECTED], self.actor[ENV_STEPS] = sent[ROWS], env_steps
        self.actor[LOST] += collected - sent[ROWS]
        self.actor[LOST_STEPS] = env_steps - sent[STEPS]
        self.actor[WAITS] = NOTHING
        return collected - sent[ROWS]

    def close(self) -> None:
        """Releases the memory and the pipe; the counters can still be read."""
        self.ring.close()
        self.pipe.close()


def wait_for(channel: SharedChannel, waits_for: int, is_over: Callable[[], bool]) -> float:
    """Blocks the actor until `is_over` returns True; returns the seconds spent waiting."""
    began_s = time.monotonic()
    channel.actor[WAITS] = waits_for
    fence()  # makes the wait visible to the learner
    channel.wake_learner()
    try:
        while not is_over():
            channel.pipe.wait(_RECHECK_S)
    finally:
        channel.actor[WAITS] = NOTHING
    return time.monotonic() - began_s


class ChannelWriter:
    """The actor's end of a channel, which sends messages."""

    def __init__(self, channel: SharedChannel) -> None:
        self._channel = channel
        self._writer = MessageWriter(channel.ring)

    def send(self, message: Message) -> float:
        """Sends a message, blocking while the ring is full, and wakes a waiting learner.

        Returns the seconds spent waiting.
        """
        waited_s = 0.0
        rest: Message | None = message
        while rest is not None:
            piece = rest
            if not self._writer.has_space(piece):
                is_over = partial(self._writer.has_space, piece)
                waited_s += wait_for(self._channel, SPACE, is_over)
            rest = self._writer.write(piece)
            self._channel.wake_learner()
        return waited_s
