"""The learner's end of the channel."""

from __future__ import annotations

import numpy as np
from fakes import FakeClock

from border_cli.actor_manager.actor_record import ActorRecord
from border_cli.actor_manager.channel import Channel
from border_cli.actor_manager.inbox import Inbox, Letter, Note
from border_cli.core.types import Experience, Transitions


def message(actor_id: int, rows: int) -> Experience:
    column = np.zeros(rows, np.float32)
    transitions = Transitions(
        obs=column, action=column, reward=column, discount=column, next_obs=column
    )
    return Experience(
        actor_id=actor_id, opt_steps=0, env_steps=rows, transitions=transitions, episodes=()
    )


def note(question: int, actor_id: int, samples: int) -> Note:
    return Note(question, ActorRecord(actor_id=actor_id, samples=samples))


def inbox_of(*letters: Letter) -> Inbox:
    channel: Channel[Letter] = Channel(100)
    for letter in letters:
        channel.put(letter)
    return Inbox(channel, 2, FakeClock())


def rows(messages: list[Experience]) -> list[tuple[int, int]]:
    return [(each.actor_id, len(each.transitions)) for each in messages]


def test_what_comes_behind_an_answer_is_handed_out_later_and_once() -> None:
    inbox = inbox_of(
        message(0, 1), message(1, 2), note(1, 0, 1), message(0, 3), message(1, 4), note(1, 1, 6),
        message(1, 5),
    )  # fmt: skip
    arrived, records = inbox.take_up_to_notes(1, 5.0, awaits=lambda answered: len(answered) < 2)
    assert rows(arrived) == [(0, 1), (1, 2), (1, 4)]
    assert {each: records[each].samples for each in records} == {0: 1, 1: 6}
    assert inbox.received == [1, 6]
    assert rows(inbox.take()) == [(0, 3), (1, 5)]
    assert inbox.received == [4, 11]
    assert inbox.take() == []


def test_what_was_held_back_comes_before_the_next_answers() -> None:
    inbox = inbox_of(note(1, 0, 0), message(0, 1))
    assert inbox.take_up_to_notes(1, 5.0, awaits=lambda answered: not answered)[0] == []
    arrived, records = inbox.take_up_to_notes(2, 5.0, awaits=lambda _: False)
    assert (rows(arrived), records) == ([(0, 1)], {})


def test_an_answer_to_an_earlier_question_is_dropped() -> None:
    inbox = inbox_of(message(0, 1), note(1, 0, 1), message(0, 2), note(2, 0, 3), message(0, 4))
    arrived, records = inbox.take_up_to_notes(2, 5.0, awaits=lambda answered: not answered)
    assert rows(arrived) == [(0, 1), (0, 2)]
    assert records[0].samples == 3
    assert rows(inbox.take()) == [(0, 4)]
    assert rows(inbox_of(note(1, 0, 0), message(0, 5)).take()) == [(0, 5)]
