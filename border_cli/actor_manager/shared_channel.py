"""The channel between the learner and one actor's process: counters, and a ring of messages.

The learner owns one channel per actor and every process of that actor writes to the same one. As in
the ring (`message_ring.py`) there is no lock, and every word has one writer at a time.
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

# Words that the learner writes.
GRANTED: Final = 0  # samples that the actor may have made in all
CLOSING: Final = 1  # 1: send what was gathered and end
LEARNER_WAITS: Final = 2  # 1: wake the learner for news
LEARNER_WORDS: Final = 8

# Words that the actor writes (its supervisor, while it has no process).
MADE: Final = 0  # samples made, those of a killed process taken back
ENV_STEPS: Final = 1
BEATS: Final = 2
WAITS: Final = 3  # for what: one of the next three
LOST_STEPS: Final = 4  # env steps that no message will count
LOST: Final = 5  # samples that died with a process
ACTOR_WORDS: Final = 8

NOTHING: Final = 0
BUDGET: Final = 1
SPACE: Final = 2

WAITS_FOR: Final = {
    BUDGET: "the rate limiter (trainer.samples_per_opt_step)",
    SPACE: "space in its ring buffer",
}

MESSAGES: Final = 64  # in flight at most

_LOOK_AGAIN_S = 1.0  # a wait without a limit could outlive a lost wake-up


class SharedChannel(Mapped):
    """Owned by the manager, which closes it."""

    crossing = ("pipe", "learner_pipe", "ring")

    def __init__(
        self,
        spec: EnvSpec,
        *,
        capacity: int,
        learner_pipe: WakePipe,
        extras: Sequence[Column] = (),
        returns: bool = False,
    ) -> None:
        """`capacity`: rows of its ring; `returns`: its messages carry running returns."""
        self.pipe = WakePipe()  # wakes the actor
        self.learner_pipe = learner_pipe
        whole, real = np.dtype(np.int64), np.dtype(np.float64)
        self.ring = MessageRing(
            spec,
            capacity=capacity,
            messages=MESSAGES,
            extras=extras,
            returns=returns,
            more=[
                (whole, (LEARNER_WORDS,)),
                (whole, (ACTOR_WORDS,)),
                (real, (len(ACTOR_SECTIONS),)),
            ],
        )
        self._map()

    def _map(self) -> None:
        learner, actor, seconds = self.ring.more
        self.learner, self.actor, self.seconds = integers(learner), integers(actor), floats(seconds)

    def wake(self, waits_for: int) -> None:
        """Wakes the actor if it waits for this, which was written just now."""
        fence()  # it sees what was written before its wait is read here
        if self.actor[WAITS] == waits_for:
            self.pipe.wake()

    def wake_learner(self) -> None:
        """Wakes the learner if it waits for news, which was written just now."""
        if self.learner[LEARNER_WAITS]:
            self.learner_pipe.wake()

    def release(self, reader: MessageReader) -> None:
        """Frees the space of all that was taken; wakes an actor that waits for it."""
        if reader.release():
            self.wake(SPACE)

    def counts(self) -> tuple[int, int]:
        """Samples that were made and not lost, and env steps, of all processes so far.

        A process counts its last step after it has sent its messages, env steps first. Both are of
        one moment: they are read again where samples were counted in between.
        """
        while True:
            sent = self.ring.header(self.ring.written[0])
            made = self.actor[MADE]
            fence()
            env_steps = max(self.actor[ENV_STEPS], sent[STEPS] + self.actor[LOST_STEPS])
            fence()
            if made == self.actor[MADE]:
                return max(made, sent[ROWS]), env_steps

    def reap(self) -> int:
        """Completes the counters of a process that has ended; returns the samples that it lost."""
        sent = self.ring.header(self.ring.written[0])
        made, env_steps = self.counts()
        self.actor[MADE], self.actor[ENV_STEPS] = sent[ROWS], env_steps
        self.actor[LOST] += made - sent[ROWS]
        self.actor[LOST_STEPS] = env_steps - sent[STEPS]
        self.actor[WAITS] = NOTHING
        return made - sent[ROWS]

    def close(self) -> None:
        """Gives up its memory and its pipe; its counters can still be read."""
        self.ring.close()
        self.pipe.close()


def wait_for(channel: SharedChannel, what: int, is_over: Callable[[], bool]) -> float:
    """Sleeps until `is_over`, of which the learner wakes the actor; returns the seconds."""
    began_s = time.monotonic()
    channel.actor[WAITS] = what
    fence()  # the learner sees the wait from here on
    channel.wake_learner()
    try:
        while not is_over():
            channel.pipe.wait(_LOOK_AGAIN_S)
    finally:
        channel.actor[WAITS] = NOTHING
    return time.monotonic() - began_s


class ChannelWriter:
    """The actor's end of a channel."""

    def __init__(self, channel: SharedChannel) -> None:
        self._channel = channel
        self._writer = MessageWriter(channel.ring)

    def send(self, message: Message) -> float:
        """Waits for space, and wakes a learner that waits; returns the seconds that it waited."""
        waited_s = 0.0
        left: Message | None = message
        while left is not None:
            piece = left
            if not self._writer.has_space(piece):
                is_over = partial(self._writer.has_space, piece)
                waited_s += wait_for(self._channel, SPACE, is_over)
            left = self._writer.write(piece)
            self._channel.wake_learner()
        return waited_s
