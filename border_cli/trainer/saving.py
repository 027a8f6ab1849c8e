"""When weights were last saved, and what happens where the disk does not take them."""

from __future__ import annotations

import logging
from collections.abc import Callable

from border_cli.core.clock import Clock
from border_cli.core.timing import Timing

log = logging.getLogger(__name__)


class Saving:
    """Runs what writes a checkpoint; owned by the learner's thread.

    An `OSError` (a full disk) does not end a run: it is said at once and counted.
    """

    def __init__(self, every_s: float | None, *, clock: Clock, timing: Timing) -> None:
        self._every_s = every_s
        self._clock = clock
        self._timing = timing
        self._saved_s = clock.now_s()
        self._opt_steps: int | None = None  # of the newest checkpoint
        self.failures = 0

    def begin(self) -> None:
        """Starts the time between two checkpoints."""
        self._saved_s = self._clock.now_s()

    def is_overdue(self, now_s: float) -> bool:
        """Whether `trainer.save_every_s` has passed."""
        return self._every_s is not None and now_s - self._saved_s >= self._every_s

    def has(self, opt_steps: int) -> bool:
        """Whether the newest checkpoint is that of this optimisation step."""
        return self._opt_steps == opt_steps

    def checkpoint(self, opt_steps: int, write: Callable[[], None]) -> None:
        """Writes a checkpoint; after a failure the next one comes at its usual time."""
        if self.attempt(write):
            self._opt_steps = opt_steps
        self._saved_s = self._clock.now_s()

    def attempt(self, write: Callable[[], None]) -> bool:
        """Whether it could be written."""
        try:
            with self._timing.section("save"):
                write()
        except OSError as error:
            self.failures += 1
            log.error(
                "a checkpoint could not be written (%s); training goes on with the one before it, "
                "%d failures so far", error, self.failures,
            )  # fmt: skip
            return False
        return True
