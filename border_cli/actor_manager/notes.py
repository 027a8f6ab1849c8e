"""How an actor in another process tells where it stands: the learner asks, it leaves a note.

A question is a number in the lane. Between two steps the actor sends what it has gathered, writes
its note, tells how many messages it had written by then, and last which question that answers; it
goes on at once. So the learner knows the rows up to the note from those behind it, and a process
that is killed at any store has answered wholly or not at all.
"""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from typing import Any, Final

from border_cli.actor_manager.lane import (
    ANSWERED,
    ASKED,
    LEARNER_WAITS,
    MARK,
    PERMISSION,
    WRITTEN,
    Lane,
)
from border_cli.core.types import State
from border_cli.process.memory import fence

NOT_WHOLE: Final = 0  # in place of a question: the note is being written, or there was none yet
LAST: Final = -1  # in place of a question: it closes


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """Where an actor stood, between two steps and with nothing unsent."""

    life: int
    messages: int  # written before
    env_steps: int
    lost: int  # samples
    actor: State


def ask(lane: Lane, question: int) -> None:
    """Wants an answer from the actor, also where it waits for permission; waits for none."""
    lane.learner[ASKED] = question
    lane.wake(PERMISSION)


def answer(lane: Lane, question: int, note: Note) -> None:
    """Leaves the note; an empty one where there is no memory for it."""
    lane.actor[ANSWERED] = NOT_WHOLE
    fence()
    lane.note.write(pickle.dumps(note, protocol=pickle.HIGHEST_PROTOCOL))
    lane.actor[MARK] = note.messages
    fence()
    lane.actor[ANSWERED] = question  # the one store by which all of it is there
    fence()
    if lane.learner[LEARNER_WAITS]:
        lane.learner_bell.ring()


def is_answered(lane: Lane, question: int | None) -> bool:
    """Whether the newest note answers this question; None is never answered."""
    return bool(lane.actor[ANSWERED] == question)


def written_by_then(lane: Lane, question: int | None) -> int:
    """Messages up to the answer; where there is none, those so far, which are no more than that."""
    written = lane.actor[WRITTEN]
    fence()  # in this order: an answer that is not seen here comes behind all that was seen
    if not is_answered(lane, question):
        return written
    fence()
    return lane.actor[MARK]


def read_note(lane: Lane, question: int | None) -> Note | None:
    """The answer, or None where it is not there or is just being replaced."""
    if not is_answered(lane, question):
        return None
    fence()
    text = lane.note.read()
    fence()
    if not text or not is_answered(lane, question):
        return None
    note: Any = pickle.loads(text)
    assert isinstance(note, Note)
    return note
