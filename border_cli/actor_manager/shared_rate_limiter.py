"""A rate limiter for actors in processes, which grants samples as `rate_limiter.py` does."""

from __future__ import annotations

import math
from collections.abc import Sequence

from border_cli.actor_manager.shared_channel import BUDGET, COLLECTED, GRANTED, SharedChannel

UNLIMITED = 2**62  # samples


class SharedRateLimiter:
    """A non-blocking rate limiter for actor processes; owned by the learner's thread.

    An actor gets its next grant once it has at most `n_buffer` / 2 samples left. When a process is
    killed, its grant passes to the next process of the same actor.
    """

    def __init__(self, channels: Sequence[SharedChannel], n_buffer: int) -> None:
        self._channels = list(channels)  # in the order in which they receive grants
        self._n_buffer = n_buffer
        self._permitted = 0.0
        self._granted = 0
        self._last = False  # whether the limit no longer rises
        self._unlimited = False

    def resume(self, samples: int) -> None:
        """Sets the number of samples received in earlier attempts."""
        self._granted = samples

    def permit(self, samples_total: float) -> None:
        """Raises the limit on the total number of samples; a smaller value does not lower it."""
        if self._unlimited:
            return
        self._last = samples_total <= self._permitted
        if not self._last:
            self._permitted = samples_total
        if self._last or samples_total - self._granted >= self._n_buffer:
            self.distribute()

    def distribute(self, *, urgent: bool = False) -> None:
        """Grants samples to actors that are about to run out; `urgent` if the learner waits."""
        free = self._permitted - self._granted
        if self._unlimited or free < (1 if urgent or self._last else self._n_buffer):
            return
        if free == math.inf:
            self._unlimited = True
            for channel in self._channels:
                self._grant(channel, UNLIMITED - channel.learner[GRANTED])
            return
        requests = [
            (channel, want)
            for channel in self._channels
            if (want := self._n_buffer + channel.actor[COLLECTED] - channel.learner[GRANTED])
            >= -(-self._n_buffer // 2)
        ]
        served: list[SharedChannel] = []
        for remaining, (channel, want) in zip(range(len(requests), 0, -1), requests, strict=True):
            left = self._permitted - self._granted
            if samples := max(0, min(want, math.ceil(left / remaining), math.floor(left))):
                self._grant(channel, samples)
                served.append(channel)
        if len(served) < len(requests):  # channels without a grant come first next time
            self._channels = [other for other in self._channels if other not in served] + served

    def _grant(self, channel: SharedChannel, samples: int) -> None:
        channel.learner[GRANTED] += samples
        self._granted += samples
        channel.wake(BUDGET)
