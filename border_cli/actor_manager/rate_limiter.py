"""Limits the samples of actors in threads to what the learner permits.

The permission is divided into grants of up to a burst (`n_buffer` samples), whose sum never
exceeds it. A waiting actor is woken only when a whole burst is free: an actor that is woken for
every single sample makes the learner fight for the interpreter lock at every update (measured: 2 %
of its speed is left), or costs it a system call where the actor is a process; one that is woken for
a hundred costs next to nothing. While the learner itself waits for samples, or once the permission
no longer grows, one free sample is enough.

A thread that steps its environment without a pause holds the GIL whenever the learner's many small
torch calls want it back, which reduces the learner to 4 to 10 % of its speed
(`trainer.samples_per_opt_step=null actor_manager=thread`). A process costs the learner only the
memory it shares, and a rate-limited thread sleeps.

An actor without a grant first sends its partly filled proxy and then waits, so no samples are held
back by a waiting actor. Actors are woken in order of waiting time, one for each available burst. A
crashed actor returns the undelivered part of its grant.
"""

from __future__ import annotations

import math
import threading

_LOOK_AGAIN_S = 1.0  # a wait without a limit could outlive a lost wake-up


class Closed(Exception):
    """The rate limiter or the channel was closed; the actor has nothing left to do."""


class RateLimiter:
    """Grants samples to actors in threads, who wait for it; any thread may call it."""

    def __init__(self, burst: int) -> None:
        self._burst = burst
        self._permitted = 0.0
        self._granted = 0
        self.waiting = 0
        self._urgent = False
        self._last = False  # the permission no longer grows
        self._changed = threading.Condition()
        self.closed = False  # read by actors between two steps, without the lock

    def resume(self, samples: int) -> None:
        """So many samples were granted before, and not lost; called before all else."""
        self._granted = samples

    def permit(self, samples_total: float) -> None:
        """Raises the number of samples that may exist in all; a smaller one changes nothing.

        A permission that no longer grows will never make a burst: what is left is then granted.
        """
        last = samples_total <= self._permitted  # only the learner's thread writes it
        if last and self._last:
            return
        with self._changed:
            self._last = last
            opens, self._permitted = not self.is_open, max(self._permitted, samples_total)
            if opens:
                self._changed.notify_all()
            self._wake()

    @property
    def is_open(self) -> bool:
        """Whether anything was permitted yet."""
        return self._permitted > 0

    def wait_until_open(self) -> None:
        """Waits until anything is permitted; raises `Closed`."""
        with self._changed:
            while not (self.is_open or self.closed):
                self._changed.wait(_LOOK_AGAIN_S)
            if self.closed:
                raise Closed

    def set_urgent(self, urgent: bool) -> None:
        """Whether the learner waits for samples."""
        with self._changed:
            self._urgent = urgent
            self._wake()

    def try_acquire(self, want: int) -> int:
        """Up to `want` samples, 0 where none is free or others wait already; raises `Closed`."""
        with self._changed:
            return self._take(0 if self.waiting else want)

    def acquire(self, want: int) -> int:
        """Waits until it is worth it, then up to `want` samples; raises `Closed`."""
        with self._changed:
            self.waiting += 1
            try:
                while not (self.closed or self._worth_waking()):
                    self._changed.wait(_LOOK_AGAIN_S)
                return self._take(want)
            finally:
                self.waiting -= 1

    def give_back(self, samples: int) -> None:
        """Returns granted samples that will never reach the learner (a negative number owes)."""
        with self._changed:
            self._granted -= samples
            self._changed.notify_all()

    def pause(self, timeout_s: float) -> None:
        """Waits for `timeout_s`; raises `Closed` at once when the limiter closes."""
        with self._changed:
            if self._changed.wait_for(lambda: self.closed, timeout_s):
                raise Closed

    def close(self) -> None:
        """Ends all waits; nothing is granted from now on."""
        with self._changed:
            self.closed = True
            self._changed.notify_all()

    def _wake(self) -> None:
        """Wakes those that waited longest, one for every burst that is free, or all."""
        if not self.waiting or not self._worth_waking():
            return
        bursts = self._free() / self._burst
        self._changed.notify(self.waiting if self._scarce else int(min(bursts, self.waiting)))

    def _worth_waking(self) -> bool:
        return self._free() >= (1 if self._scarce else self._burst)

    @property
    def _scarce(self) -> bool:
        """Whether less than a burst is worth a grant, too."""
        return self._urgent or self._last

    def _free(self) -> float:
        return self._permitted - self._granted

    def _take(self, want: int) -> int:
        if self.closed:
            raise Closed
        free = self._free()
        if free == math.inf:
            return want
        share = math.ceil(free / max(1, self.waiting))  # each that is woken gets at least one
        if not self._scarce:  # thirty actors need not be woken for a sample each
            share = max(share, self._burst)
        granted = max(0, min(want, share, math.floor(free)))
        self._granted += granted
        return granted
