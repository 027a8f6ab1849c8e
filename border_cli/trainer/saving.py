"""When checkpoints are due, and what becomes of them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from border_cli.core.config import TrainerConfig
from border_cli.core.output import Checkpoints, RunState, SaveReport
from border_cli.core.stop import Heartbeat, SaveFlag
from border_cli.core.timing import Clock

log = logging.getLogger(__name__)

LOOK_UP_S = 0.2  # between two looks at how far the disk is


class Saving:
    """Hands checkpoints over to whoever writes them; owned by the learner's thread.

    A disk that does not take them does not end a run. A checkpoint that falls due while the one
    before is still being written is left out and counted; one that a signal asked for waits its
    turn, and the last one of a run is never left out.
    """

    def __init__(
        self,
        config: TrainerConfig,
        checkpoints: Checkpoints,
        *,
        clock: Clock,
        flag: SaveFlag,
        on_saved: Callable[[Mapping[str, float]], None] = lambda _: None,
    ) -> None:
        self._interval = config.save_interval
        self._every_s = config.save_every_s
        self._checkpoints = checkpoints
        self._clock = clock
        self._flag = flag
        self._on_saved = on_saved
        self._saved_s = clock.now_s()
        self._counters: dict[str, float] | None = None  # of what was handed over last
        self.skipped = 0

    def begin(self) -> None:
        """Starts the time between two checkpoints."""
        self._saved_s = self._clock.now_s()

    @property
    def is_asked(self) -> bool:
        """Whether a signal asked for a checkpoint that can be written now."""
        return self._flag.requested and not self._checkpoints.busy

    def is_urgent(self, now_s: float) -> bool:
        """Whether one is due that no number of optimisation steps announces."""
        overdue = self._every_s is not None and now_s - self._saved_s >= self._every_s
        return overdue or self._flag.requested

    def is_due(self, opt_steps: int, now_s: float) -> bool:
        """Whether it is time for one; left out and counted where the disk is not ready."""
        by_steps = self._interval > 0 and opt_steps % self._interval == 0
        if not (by_steps or self.is_urgent(now_s)):
            return False
        if not self._checkpoints.busy:
            return True
        if by_steps or not self._flag.requested:
            self._saved_s = now_s
            self._skip(opt_steps)
        return False

    def _skip(self, opt_steps: int) -> None:
        self.skipped += 1
        log.log(
            logging.WARNING if self.skipped == 1 else logging.DEBUG,
            "skipped the checkpoint at update %d: the previous one is still being written "
            "(try a larger trainer.save_interval or a smaller replay buffer)",
            opt_steps,
        )

    def hand_over(self, state: RunState) -> None:
        """Has this checkpoint written."""
        if self._checkpoints.save(state):
            self._flag.clear()
            self._counters = _position(state.counters)
            self._on_saved(state.counters)
        self._saved_s = self._clock.now_s()

    def has(self, counters: Mapping[str, float]) -> bool:
        """Whether the newest checkpoint is of this very moment and on the disk."""
        known = self.report.problem is None and self._counters == _position(counters)
        return known and self._checkpoints.is_intact()

    def finish(self, heartbeat: Heartbeat) -> None:
        """Until everything is on the disk, or could not be written."""
        with heartbeat.waiting("the disk"):
            written = self.report
            while not self._checkpoints.wait(LOOK_UP_S):
                if self.report != written:  # a large replay buffer takes its time
                    written = self.report
                    heartbeat.beat()

    @property
    def report(self) -> SaveReport:
        """What became of the checkpoints so far."""
        return self._checkpoints.report


def _position(counters: Mapping[str, float]) -> dict[str, float]:
    """Where in a run these counters are; time goes on even where nothing happens."""
    return {name: value for name, value in counters.items() if name != "time_s"}
