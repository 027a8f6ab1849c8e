"""Holds the actors to the number of samples that the learner permits."""

from __future__ import annotations

import math
import threading

from border_cli.actor_manager.channel import Closed

_LOOK_AGAIN_S = 1.0


class Gate:
    """Leases samples to actors; the sum of leases never exceeds what the learner permits.

    A waiting actor is woken only when `burst` samples are free: an actor that is woken for every
    single sample makes the learner fight for the interpreter lock at every update (measured: 2 %
    of its speed is left), one that is woken for a hundred costs it next to nothing. While the
    learner itself waits there is nothing to protect, and one free sample is enough.

    Here the actors are also asked where they stand, because here they may have to be woken for it.
    """

    def __init__(self, burst: int) -> None:
        self._burst = burst
        self._permitted = 0.0
        self._leased = 0
        self.waiting = 0
        self._urgent = False
        self._last = False  # the permission no longer grows
        self._changed = threading.Condition()
        # Read by actors between two steps, without the lock:
        self.closed = False
        self.asked = 0  # grows whenever every actor shall note where it stands

    def resume(self, leased: int) -> None:
        """So many samples were leased before, and not lost; called before anybody else calls."""
        self._leased = leased

    def permit(self, samples_total: float) -> None:
        """Raises the number of samples that may exist in all; a smaller one changes nothing.

        A permission that no longer grows will never make a burst: what is left is then leased.
        """
        last = samples_total <= self._permitted  # only the learner's thread writes it
        if last and self._last:
            return
        with self._changed:
            self._last = last
            opens, self._permitted = not self.opened, max(self._permitted, samples_total)
            if opens:
                self._changed.notify_all()
            self._wake()

    @property
    def opened(self) -> bool:
        """Whether anything was permitted yet."""
        return self._permitted > 0

    def wait_opened(self) -> None:
        """Pauses until anything is permitted; raises `Closed`."""
        with self._changed:
            while not (self.opened or self.closed):
                self._changed.wait(_LOOK_AGAIN_S)
            if self.closed:
                raise Closed

    def ask(self) -> int:
        """Has every actor note where it stands; returns the number of the question."""
        with self._changed:
            self.asked += 1
            self._changed.notify_all()
            return self.asked

    def urge(self, urgent: bool) -> None:
        """Tells whether the learner waits for samples."""
        with self._changed:
            self._urgent = urgent
            self._wake()

    def try_lease(self, want: int) -> int:
        """Up to `want` samples, 0 where none is free or others wait already; raises `Closed`."""
        with self._changed:
            return self._take(0 if self.waiting else want)

    def lease(self, want: int, *, answered: int = 0) -> int:
        """Waits until it is worth it, then up to `want` samples; raises `Closed`.

        0 where there is a question later than the one that was `answered` last.
        """
        with self._changed:
            self.waiting += 1
            try:
                while not (self.closed or self._worth_waking() or self.asked != answered):
                    self._changed.wait(_LOOK_AGAIN_S)
                return self._take(want) if self.closed or self._worth_waking() else 0
            finally:
                self.waiting -= 1

    def give_back(self, samples: int) -> None:
        """Returns leased samples that will never reach the learner (a negative number owes)."""
        with self._changed:
            self._leased -= samples
            self._changed.notify_all()

    def wait_closed(self, timeout_s: float) -> None:
        """Pauses for `timeout_s`; raises `Closed` at once when the gate closes."""
        with self._changed:
            if self._changed.wait_for(lambda: self.closed, timeout_s):
                raise Closed

    def close(self) -> None:
        """Wakes everyone; nothing is leased from now on."""
        with self._changed:
            self.closed = True
            self._changed.notify_all()

    def _wake(self) -> None:
        """Wakes those who waited longest, one for every burst that is free, or all."""
        if not self.waiting or not self._worth_waking():
            return
        bursts = self._room() / self._burst
        self._changed.notify(self.waiting if self._scarce else int(min(bursts, self.waiting)))

    def _worth_waking(self) -> bool:
        return self._room() >= (1 if self._scarce else self._burst)

    @property
    def _scarce(self) -> bool:
        """Whether less than a burst is worth a lease, too."""
        return self._urgent or self._last

    def _room(self) -> float:
        return self._permitted - self._leased

    def _take(self, want: int) -> int:
        if self.closed:
            raise Closed
        room = self._room()
        if room == math.inf:
            return want
        share = math.ceil(room / max(1, self.waiting))  # nobody who is woken goes away empty
        if not self._scarce:  # thirty actors need not be woken for a sample each
            share = max(share, self._burst)
        granted = max(0, min(want, share, math.floor(room)))
        self._leased += granted
        return granted
