"""The bounded way from the actors to the learner."""

from __future__ import annotations

import threading
from collections import deque
from typing import Generic, TypeVar

_LOOK_AGAIN_S = 1.0  # a wait without a limit could outlive a lost wake-up


Message = TypeVar("Message")


class Closed(Exception):
    """The channel or the gate was closed; the actor has nothing left to do."""


class Channel(Generic[Message]):
    """First in, first out, per actor and over all; many producers, one consumer.

    A full channel makes producers wait, so a slow learner costs no memory. `close` wakes everyone;
    what is inside can still be drained.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity  # messages
        self._messages: deque[Message] = deque()
        self._closed = False
        self._woken = False  # there is news that is not a message
        lock = threading.Lock()
        self._arrived = threading.Condition(lock)
        self._room = threading.Condition(lock)

    def put(self, message: Message) -> None:
        """Waits for room; raises `Closed` once the channel is closed."""
        with self._room:
            while len(self._messages) >= self._capacity and not self._closed:
                self._room.wait(_LOOK_AGAIN_S)
            if self._closed:
                raise Closed
            self._messages.append(message)
            self._arrived.notify()

    def drain(self, timeout_s: float = 0.0) -> list[Message]:
        """All that is inside; waits up to `timeout_s` for the first message."""
        if not self._messages and timeout_s <= 0:
            return []  # the learner asks before every update: no lock for nothing
        with self._arrived:
            if not (self._messages or self._closed or self._woken):
                self._arrived.wait(timeout_s)
            self._woken = False
            messages = list(self._messages)
            self._messages.clear()
            self._room.notify_all()
            return messages

    def close(self) -> None:
        """Wakes everyone; no message gets in from now on."""
        with self._room:
            self._closed = True
            self._room.notify_all()
            self._arrived.notify_all()

    def wake(self) -> None:
        """Ends the consumer's wait early, or its next one, for news that is not a message."""
        with self._arrived:
            self._woken = True
            self._arrived.notify_all()

    @property
    def fill(self) -> float:
        """Share of the capacity in use, 0 … 1."""
        return len(self._messages) / self._capacity
