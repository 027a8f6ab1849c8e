"""Where an actor's time goes."""

from __future__ import annotations

from typing import Final

from border_cli.core.timing import ACTOR_SECTIONS, Clock

ACT, ENV_STEP, PROCESS, SEND, BLOCKED = range(len(ACTOR_SECTIONS))

# One step in so many is timed and stands for all: the clock would cost some per cent of a short
# step. A prime, so that it falls in with no other rhythm of the actor.
TIMED_EVERY: Final = 17


class Laps:
    """Seconds per section of one actor; owned by whoever steps it."""

    def __init__(self, clock: Clock) -> None:
        self.seconds = [0.0] * len(ACTOR_SECTIONS)
        self._clock = clock
        self._countdown = 1  # the first step is timed
        self._since_s = 0.0

    def begin(self) -> bool:
        """Starts a step; whether it is one of those that are timed."""
        self._countdown -= 1
        if self._countdown:
            return False
        self._countdown = TIMED_EVERY
        self._since_s = self._clock.now_s()
        return True

    def lap(self, section: int, *, less_s: float = 0.0) -> None:
        """What passed in this step since the last call, without `less_s`, was this section."""
        now_s = self._clock.now_s()
        self.seconds[section] += TIMED_EVERY * max(0.0, now_s - self._since_s - less_s)
        self._since_s = now_s
