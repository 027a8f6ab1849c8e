"""A rate limiter for actors in threads, which keeps the sample count within the learner's limit.

The limit is divided into grants of up to a burst (`n_buffer` samples), whose sum never exceeds it.
A waiting actor is woken only when a full burst is available. Waking an actor for every sample would
make the learner contend for the GIL at every update (measured: it drops to 2 % of its speed), or
cost it a system call if the actor is a process. Waking an actor once per hundred samples costs
almost nothing. While the learner itself waits for samples, or once the limit no longer rises, one
available sample is enough.

A thread that steps its environment without pausing holds the GIL whenever one of the learner's many
small torch calls needs it back. This slows the learner down to 4 to 10 % of its speed
(`trainer.samples_per_opt_step=null actor_manager=thread`). Actor processes share only memory
with the learner, and rate-limited threads sleep.

An actor without a grant sends its buffered samples before it waits, so waiting actors hold no
samples back. The actors that have waited longest are woken first, one for each available burst. A
crashed actor returns the undelivered part of its grant.
"""

from __future__ import annotations

import math
import threading

_RECHECK_S = 1.0  # seconds between two checks of a condition, in case a wake-up is lost


class Closed(Exception):
    """Raised in an actor's thread when the rate limiter or the channel is closed."""


class RateLimiter:
    """A thread-safe rate limiter, which blocks actors until they are granted samples."""

    def __init__(self, burst: int) -> None:
        self._burst = burst
        self.permitted = 0.0  # set by the learner's thread only
        self.granted = 0  # samples
        self.waiting = 0
        self._urgent = False
        self._last = False  # whether the limit no longer rises
        self._changed = threading.Condition()
        self.closed = False  # read without the lock by actors between two steps

    def resume(self, samples: int) -> None:
        """Sets the number of samples granted earlier and not lost. Call before other methods."""
        self.granted = samples

    def permit(self, samples_total: float) -> None:
        """Raises the limit on the total number of samples; a smaller value does not lower it.

        A call that does not raise the limit marks it as final. The remaining samples are then
        granted even if they are fewer than a burst.
        """
        last = samples_total <= self.permitted  # needs no lock
        if last and self._last:
            return
        with self._changed:
            self._last = last
            self.permitted = max(self.permitted, samples_total)
            self._wake()

    def set_urgent(self, urgent: bool) -> None:
        """Sets whether the learner is waiting for samples."""
        with self._changed:
            self._urgent = urgent
            self._wake()

    def try_acquire(self, want: int) -> int:
        """Acquires samples without blocking, but none if other actors wait; raises `Closed`."""
        with self._changed:
            return self._take(0 if self.waiting else want)

    def acquire(self, want: int) -> int:
        """Blocks until enough samples are available and acquires up to `want`; raises `Closed`."""
        with self._changed:
            self.waiting += 1
            try:
                while not (self.closed or self._worth_waking()):
                    self._changed.wait(_RECHECK_S)
                return self._take(want)
            finally:
                self.waiting -= 1

    def give_back(self, samples: int) -> None:
        """Gives back samples that will not be delivered; negative if a grant was exceeded."""
        with self._changed:
            self.granted -= samples
            self._changed.notify_all()

    def pause(self, timeout_s: float) -> None:
        """Sleeps for `timeout_s`; raises `Closed` as soon as the limiter is closed."""
        with self._changed:
            if self._changed.wait_for(lambda: self.closed, timeout_s):
                raise Closed

    def close(self) -> None:
        """Ends all waits and stops granting samples."""
        with self._changed:
            self.closed = True
            self._changed.notify_all()

    def _wake(self) -> None:
        """Wakes the actors that have waited longest, one per available burst, or all of them."""
        if not self.waiting or not self._worth_waking():
            return
        bursts = self._free() / self._burst
        self._changed.notify(self.waiting if self._scarce else int(min(bursts, self.waiting)))

    def _worth_waking(self) -> bool:
        return self._free() >= (1 if self._scarce else self._burst)

    @property
    def _scarce(self) -> bool:
        """True if grants may be smaller than a burst."""
        return self._urgent or self._last

    def _free(self) -> float:
        return self.permitted - self.granted

    def _take(self, want: int) -> int:
        if self.closed:
            raise Closed
        free = self._free()
        if free == math.inf:
            return want
        share = math.ceil(free / max(1, self.waiting))  # so that all waiting actors get some
        if not self._scarce:  # full bursts for a few actors instead of one sample for each
            share = max(share, self._burst)
        granted = max(0, min(want, share, math.floor(free)))
        self.granted += granted
        return granted
