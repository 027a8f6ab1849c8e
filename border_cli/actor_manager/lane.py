"""What the learner and one actor in another process share: counters, rows on their way, bells."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from border_cli.actor_manager.actor_record import ActorRecord, rows_in_proxy
from border_cli.core.rows import Rows, row_dtypes, row_fields
from border_cli.core.spaces import EnvSpec
from border_cli.core.timing import ACTOR_SECTIONS
from border_cli.process.bell import Bell
from border_cli.process.memory import SharedArrays, fence, real_numbers, whole_numbers
from border_cli.process.note_file import NoteFile

# Words that the learner writes.
GRANTED: Final = 0  # samples that the actor may have made in all
READ: Final = 1  # messages whose place is free again
CLOSING: Final = 2  # 1: send what is there and end
LEARNER_WAITS: Final = 3  # 1: ring the learner's bell on news
ASKED: Final = 4  # the newest question, see `notes.py`
LEARNER_WORDS: Final = 8

# Words that the actor writes (its supervisor, while no process of it lives).
MADE: Final = 0  # samples made, those of a killed process taken back
WRITTEN: Final = 1  # messages; written last: what it counts is whole
ENV_STEPS: Final = 2
BEATS: Final = 3
WAITS: Final = 4  # for what: one of the next three
LOST_STEPS: Final = 5  # env steps that no message will count: lost ones, those before a resume
ANSWERED: Final = 6  # the question that its note answers
MARK: Final = 7  # messages written before that note
LOST: Final = 8  # samples that died with a process
BUILT: Final = 9  # 1: there is an actor that can answer
RESTARTED: Final = 10  # episodes that it could not continue and began anew
ACTOR_WORDS: Final = 16

_LOOK_AGAIN_S = 1.0

NOTHING: Final = 0
PERMISSION: Final = 1
ROOM: Final = 2

WAITS_FOR: Final = {
    PERMISSION: "the rate limiter (trainer.samples_per_opt_step)",
    ROOM: "space in its ring buffer",
}

# A message has four integers; all but the opt steps count from the first message on.
ROWS: Final = 0
STEPS: Final = 1
EPISODES: Final = 2
OPT_STEPS: Final = 3
HEADER: Final = 4
MESSAGES: Final = 64  # under way at most
EPISODE: Final = 2  # numbers per episode: score, length
RETURNS: Final = 3  # numbers of running returns per message: count, mean, squares


class Lane:
    """Owned by the manager, which closes it; every word has one writer at a time.

    Integers of 8 bytes at their own alignment are written at once, so no reader sees half of one.
    Picklable on the way into a child process only.
    """

    def __init__(
        self, spec: EnvSpec, *, capacity: int, learner_bell: Bell, returns: bool = False
    ) -> None:
        """`returns`: messages carry the moments of running returns; else there is no room for
        them."""
        self.capacity = capacity  # rows
        self.bell = Bell()  # wakes the actor
        self.learner_bell = learner_bell
        self.note = NoteFile()  # where the actor stands
        self._spec = spec
        whole, real = np.dtype(np.int64), np.dtype(np.float64)
        self._shared = SharedArrays(
            [
                (whole, (LEARNER_WORDS,)),
                (whole, (ACTOR_WORDS,)),
                (real, (len(ACTOR_SECTIONS),)),
                (whole, (MESSAGES * HEADER,)),
                (real, (capacity * EPISODE,)),
                *((dtype, (capacity,)) for dtype in row_dtypes(row_fields(spec))),
                (real, (MESSAGES * RETURNS * returns,)),
            ]
        )
        self._look()

    def _look(self) -> None:
        learner, actor, seconds, headers, episodes, *blocks, returns = self._shared.arrays
        self.learner, self.actor = whole_numbers(learner), whole_numbers(actor)
        self.seconds = real_numbers(seconds)
        self.headers, self.episodes = whole_numbers(headers), real_numbers(episodes)
        self.returns = real_numbers(returns)  # empty where nobody needs them
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
        """Tells the actor that what was written just now may end this wait of its."""
        fence()  # it sees what was written before we see whether it waits
        if self.actor[WAITS] == waits_for:
            self.bell.ring()

    def resume(self, record: ActorRecord) -> None:
        """Lets its counters go on from there; before anybody else has the lane.

        What is to be made is leased anew: nobody may act before the first weights are there.
        """
        unsent = record.actor["proxy"]["env_steps"] if record.actor else 0
        self.actor[MADE] = self.learner[GRANTED] = rows_in_proxy(record.actor)
        self.actor[ENV_STEPS] = record.env_steps
        self.actor[LOST_STEPS] = record.env_steps - unsent
        self.actor[LOST] = record.lost
        self.actor[RESTARTED] = record.restarted_episodes
        for section, seconds in enumerate(record.seconds):
            self.seconds[section] = seconds

    def bury(self) -> int:
        """Settles what a process left that is no more; returns the samples that died with it."""
        written, sent_steps, _, _ = self.header(self.actor[WRITTEN])
        lost = max(0, self.actor[MADE] - written)
        self.actor[MADE] = written
        self.actor[LOST] += lost
        self.actor[BUILT] = 0
        # What it sent within the step that was its last, it had no time to count.
        known_steps = sent_steps + self.actor[LOST_STEPS]
        self.actor[ENV_STEPS] = max(self.actor[ENV_STEPS], known_steps)
        self.actor[LOST_STEPS] = self.actor[ENV_STEPS] - sent_steps
        self.actor[WAITS] = NOTHING
        return lost

    def close(self) -> None:
        """Gives its memory and its bell up; its counters can still be read."""
        self.learner, self.actor, self.headers = (
            whole_numbers(np.array(each)) for each in (self.learner, self.actor, self.headers)
        )
        self.seconds = real_numbers(np.array(self.seconds))
        self.episodes, self.columns = real_numbers(np.empty(0)), {}
        self.returns = real_numbers(np.empty(0))
        self._shared.close()
        self.note.close()
        self.bell.close()

    def __getstate__(self) -> dict[str, Any]:
        return {
            "capacity": self.capacity,
            "bell": self.bell,
            "learner_bell": self.learner_bell,
            "note": self.note,
            "_spec": self._spec,
            "_shared": self._shared,
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._look()


def wait_for(lane: Lane, what: int, is_over: Callable[[], bool]) -> float:
    """Sleeps until `is_over`, which whoever makes it true tells by the actor's bell.

    Returns the seconds that passed.
    """
    began_s = time.monotonic()
    lane.actor[WAITS] = what
    fence()  # whoever makes it true from here on sees that we wait
    if lane.learner[LEARNER_WAITS]:
        lane.learner_bell.ring()
    try:
        while not is_over():
            lane.bell.wait(_LOOK_AGAIN_S)
    finally:
        lane.actor[WAITS] = NOTHING
    return time.monotonic() - began_s
