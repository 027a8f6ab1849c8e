"""Leases of samples for actors in other processes: what `gate.py` is to threads."""

from __future__ import annotations

import math
from collections.abc import Sequence

from border_cli.actor_manager.lane import GRANTED, MADE, PERMISSION, Lane

WITHOUT_LIMIT = 2**62  # samples


class Leases:
    """Shares out what the learner permits; owned by the learner's thread.

    Granted in all is never more than permitted. An actor gets its next lease once half of the last
    one is used up, as soon as a whole burst of `n_buffer` samples is free: an actor that is woken
    for every sample would cost the learner a system call at every update. While the learner itself
    waits, or once the permission no longer grows, one free sample is enough. A lease of a process
    that was killed passes to the next process of the same actor.
    """

    def __init__(self, lanes: Sequence[Lane], n_buffer: int) -> None:
        self._lanes = list(lanes)  # whose turn it is first
        self._n_buffer = n_buffer
        self._permitted = 0.0
        self._granted = 0
        self._last = False  # the permission no longer grows
        self._lifted = False  # there is no limit

    def resume(self, samples: int) -> None:
        """The run goes on; so many arrived before, on top of those that the lanes begin with."""
        self._granted = samples + sum(lane.actor[MADE] for lane in self._lanes)

    def permit(self, samples_total: float) -> None:
        """Raises the number of samples that may exist in all; a smaller one changes nothing."""
        if self._lifted:
            return
        self._last = samples_total <= self._permitted
        if not self._last:
            self._permitted = samples_total
        if self._last or samples_total - self._granted >= self._n_buffer:
            self.share_out()

    def share_out(self, *, urgent: bool = False) -> None:
        """Gives leases to those who are about to need one; `urgent`: the learner waits."""
        room = self._permitted - self._granted
        if self._lifted or room < (1 if urgent or self._last else self._n_buffer):
            return
        if room == math.inf:
            self._lift()
            return
        needy = [
            (lane, want)
            for lane in self._lanes
            if (want := self._n_buffer + lane.actor[MADE] - lane.learner[GRANTED])
            >= -(-self._n_buffer // 2)
        ]
        served: list[Lane] = []
        for waiting, (lane, want) in zip(range(len(needy), 0, -1), needy, strict=True):
            left = self._permitted - self._granted
            if samples := max(0, min(want, math.ceil(left / waiting), math.floor(left))):
                self._grant(lane, samples)
                served.append(lane)
        if len(served) < len(needy):  # who went away empty comes first the next time
            self._lanes = [lane for lane in self._lanes if lane not in served] + served

    def _lift(self) -> None:
        self._lifted = True
        for lane in self._lanes:
            self._grant(lane, WITHOUT_LIMIT - lane.learner[GRANTED])

    def _grant(self, lane: Lane, samples: int) -> None:
        lane.learner[GRANTED] += samples
        self._granted += samples
        lane.wake(PERMISSION)
