"""The learner's end of the channel: messages, and among them what actors note of themselves."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from border_cli.actor_manager.actor_record import ActorRecord
from border_cli.actor_manager.channel import Channel
from border_cli.core.timing import Clock
from border_cli.core.types import Experience


@dataclass(frozen=True, slots=True)
class Note:
    """Where an actor stood when all that it had sent before was on its way."""

    question: int  # that it answers
    record: ActorRecord


Letter: TypeAlias = Experience | Note


class Inbox:
    """Hands out what arrives, per actor in order; owned by the learner's thread."""

    def __init__(self, channel: Channel[Letter], num_actors: int, clock: Clock) -> None:
        self._channel = channel
        self._clock = clock
        self._held: list[Experience] = []  # arrived, but later than what was noted last
        self.received = [0] * num_actors  # samples handed out, by actor id

    def take(self, timeout_s: float = 0.0) -> list[Experience]:
        """All that is there; waits up to `timeout_s` where nothing is."""
        drained = self._channel.drain(timeout_s)
        if not drained and not self._held:
            return []
        cut = _Cut()  # to which no note belongs: they came too late
        cut.sort(self._held)
        cut.sort(drained)
        self._held = []
        return self._counted(cut.before)

    def take_up_to_notes(
        self, question: int, timeout_s: float, *, awaits: Callable[[Mapping[int, object]], bool]
    ) -> tuple[list[Experience], dict[int, ActorRecord]]:
        """What was sent before the answers to the question, and these, by actor id.

        Goes on for up to `timeout_s` while `awaits` says that others than these will answer. What
        comes behind an answer is handed out by the next `take`.
        """
        deadline_s = self._clock.now_s() + timeout_s
        cut = _Cut(question)
        cut.sort(self._held)
        left_s = timeout_s
        while left_s > 0 and awaits(cut.records):
            cut.sort(self._channel.drain(left_s))  # which makes room for those who need it
            left_s = deadline_s - self._clock.now_s()
        cut.sort(self._channel.drain())  # of those who will not answer
        self._held = cut.behind
        return self._counted(cut.before), cut.records

    def _counted(self, arrived: list[Experience]) -> list[Experience]:
        for each in arrived:
            self.received[each.actor_id] += len(each.transitions)
        return arrived


class _Cut:
    """Sorts what arrives into before and behind the answers to one question."""

    def __init__(self, question: int | None = None) -> None:
        self._question = question
        self.records: dict[int, ActorRecord] = {}  # by actor id
        self.before: list[Experience] = []
        self.behind: list[Experience] = []

    def sort(self, letters: Iterable[Letter]) -> None:
        """Takes in what arrived; the answer to an earlier question came too late and is dropped."""
        for each in letters:
            if isinstance(each, Experience):
                (self.behind if each.actor_id in self.records else self.before).append(each)
            elif each.question == self._question:
                self.records[each.record.actor_id] = each.record
