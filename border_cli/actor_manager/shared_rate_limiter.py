"""Limits the samples of actors in processes, by grants as for threads (`rate_limiter.py`)."""

from __future__ import annotations

import math
from collections.abc import Sequence

from border_cli.actor_manager.shared_channel import BUDGET, GRANTED, MADE, SharedChannel

UNLIMITED = 2**62  # samples


class SharedRateLimiter:
    """Grants samples to actors in other processes; owned by the learner's thread, never waits.

    An actor gets its next grant once half of the last one is used up. The grant of a process that
    was killed passes to the next process of the same actor.
    """

    def __init__(self, channels: Sequence[SharedChannel], n_buffer: int) -> None:
        self._channels = list(channels)  # in the order of their turns
        self._n_buffer = n_buffer
        self._permitted = 0.0
        self._granted = 0
        self._last = False  # the permission no longer grows
        self._unlimited = False

    def resume(self, samples: int) -> None:
        """So many samples were received in earlier attempts."""
        self._granted = samples

    def permit(self, samples_total: float) -> None:
        """Raises the number of samples that may exist in all; a smaller one changes nothing."""
        if self._unlimited:
            return
        self._last = samples_total <= self._permitted
        if not self._last:
            self._permitted = samples_total
        if self._last or samples_total - self._granted >= self._n_buffer:
            self.distribute()

    def distribute(self, *, urgent: bool = False) -> None:
        """Grants samples to actors that are about to need them; `urgent`: the learner waits."""
        free = self._permitted - self._granted
        if self._unlimited or free < (1 if urgent or self._last else self._n_buffer):
            return
        if free == math.inf:
            self._unlimited = True
            for channel in self._channels:
                self._grant(channel, UNLIMITED - channel.learner[GRANTED])
            return
        needy = [
            (channel, want)
            for channel in self._channels
            if (want := self._n_buffer + channel.actor[MADE] - channel.learner[GRANTED])
            >= -(-self._n_buffer // 2)
        ]
        served: list[SharedChannel] = []
        for waiting, (channel, want) in zip(range(len(needy), 0, -1), needy, strict=True):
            left = self._permitted - self._granted
            if samples := max(0, min(want, math.ceil(left / waiting), math.floor(left))):
                self._grant(channel, samples)
                served.append(channel)
        if len(served) < len(needy):  # those that got none come first the next time
            self._channels = [each for each in self._channels if each not in served] + served

    def _grant(self, channel: SharedChannel, samples: int) -> None:
        channel.learner[GRANTED] += samples
        self._granted += samples
        channel.wake(BUDGET)
