"""Decides when a run ends, and when evaluations, rows of metrics, weight syncs and checkpoints are
due."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

from border_cli.core.output import Checkpoints, RecordStep, RunState
from border_cli.core.stop import Heartbeat, SaveFlag
from border_cli.core.timing import Clock
from border_cli.core.types import State
from border_cli.settings.run import INTERVALS, TrainerConfig
from border_cli.trainer.callbacks import Callbacks
from border_cli.trainer.evaluating import Scores
from border_cli.trainer.metrics import Counters

log = logging.getLogger(__name__)

POLL_S = 0.2  # seconds between two polls of the writer thread


def limit_reached(
    config: TrainerConfig, counters: Counters, scores: Scores, elapsed_s: float
) -> str | None:
    """Returns the name of the reached limit in updates, time or scores, or None."""
    if config.max_opt_steps is not None and counters.opt_steps >= config.max_opt_steps:
        return "max_opt_steps"
    if config.max_time_s is not None and elapsed_s >= config.max_time_s:
        return "max_time_s"
    if config.stop_at_score is not None and scores.in_a_row >= config.stop_evals:
        return "stop_at_score"
    if config.patience is not None and scores.without_best >= config.patience:
        return "patience"
    return None


def fraction_done(config: TrainerConfig, counters: Counters, elapsed_s: float) -> float:
    """Returns the completed fraction of the run by its nearest limit; 0 if only a score ends it."""
    fractions = [0.0]
    if config.max_opt_steps is not None:
        fractions.append(counters.opt_steps / config.max_opt_steps)
    if config.max_env_steps is not None:
        fractions.append(counters.env_steps / config.max_env_steps)
    if config.max_time_s is not None:
        fractions.append(elapsed_s / config.max_time_s)
    return min(1.0, max(fractions))


class Intervals:
    """The intervals, in updates or env steps, that determine what is due after an update.

    An interval in env steps is due after the first update since the count reached a multiple of it.
    Owned by the learner's thread.
    """

    def __init__(self, config: TrainerConfig, counters: Counters) -> None:
        self._counters = counters
        self._updates: dict[str, int] = {}
        self._env_steps: dict[str, int] = {}
        for name in INTERVALS:
            updates = getattr(config, f"{name}_interval")
            env_steps = getattr(config, f"{name}_interval_env_steps")
            if env_steps is not None:
                self._env_steps[name] = env_steps
            elif updates > 0:
                self._updates[name] = updates
        self._done_env_steps = 0  # env steps when everything due was last done

    def due(self) -> list[str]:
        """Returns the names of the intervals that are due after this update."""
        opt_steps, env_steps = self._counters.opt_steps, self._counters.env_steps
        by_updates = [name for name, period in self._updates.items() if opt_steps % period == 0]
        if not self._env_steps:
            return by_updates
        before = self._done_env_steps
        return by_updates + [
            name
            for name, period in self._env_steps.items()
            if env_steps // period > before // period
        ]

    def done(self) -> None:
        """Marks everything due as done."""
        self._done_env_steps = self._counters.env_steps

    def state_dict(self) -> State:
        """Returns the env steps at which everything due was last done."""
        return {"done_env_steps": self._done_env_steps}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores what `state_dict` returned."""
        self._done_env_steps = int(state["done_env_steps"])


class Saving:
    """Decides when checkpoints are due, and submits them to the writer thread.

    A checkpoint that comes due during a write is skipped and counted; one requested by a signal is
    deferred. A failed write does not end the run. Owned by the learner's thread.
    """

    def __init__(
        self,
        config: TrainerConfig,
        *,
        checkpoints: Checkpoints,
        flag: SaveFlag,
        clock: Clock,
        heartbeat: Heartbeat,
        callbacks: Callbacks,
        on_saved: Callable[[Mapping[str, float]], None],
    ) -> None:
        """`on_saved` receives the counters of each submitted checkpoint."""
        self._every_s = config.save_every_s
        self._checkpoints = checkpoints
        self._flag = flag
        self._clock = clock
        self._heartbeat = heartbeat
        self._callbacks = callbacks
        self._on_saved = on_saved
        self._saved_s = 0.0
        self._newest: dict[str, float] | None = None  # counters of the newest checkpoint
        self.skipped = 0

    def begin(self) -> None:
        """Starts the interval until the next checkpoint."""
        self._saved_s = self._clock.now_s()

    def is_urgent(self, now_s: float) -> bool:
        """Returns whether a checkpoint is due by time or was requested by a signal."""
        overdue = self._every_s is not None and now_s - self._saved_s >= self._every_s
        return overdue or self._flag.requested

    def is_due(self, opt_steps: int, now_s: float, *, by_steps: bool) -> bool:
        """Returns whether to save now. A checkpoint that comes due during a write is skipped."""
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

    def hand_over(self, state: RunState, step: RecordStep) -> None:
        """Submits a checkpoint, unless one is still being written."""
        if self._checkpoints.save(state):
            self._flag.clear()
            self._newest = _without_time(state.counters)
            self._on_saved(state.counters)
            self.announce(step)
        self.begin()

    def announce(self, step: RecordStep) -> None:
        """Calls callbacks with the newest checkpoint, once it is on disk."""
        on_checkpoint = self._callbacks.hook("on_checkpoint")
        if on_checkpoint is None:
            return
        self.wait_until_written()
        if self._checkpoints.report.problem is None:
            with self._heartbeat.waiting("a callback"):
                on_checkpoint(step, self._checkpoints.folder(step.opt_steps))

    def is_current(self, counters: Mapping[str, float]) -> bool:
        """Returns whether the newest checkpoint has these counters and is on disk."""
        return self._checkpoints.report.problem is None and self._newest == _without_time(counters)

    def wait_until_written(self) -> None:
        """Waits for all writes to end; raises `RunDeleted` if files of the run were deleted."""
        with self._heartbeat.waiting("the disk"):
            report = self._checkpoints.report
            while not self._checkpoints.wait(POLL_S):
                if self._checkpoints.report != report:  # a large replay buffer is slow to write
                    report = self._checkpoints.report
                    self._heartbeat.beat()
        self._checkpoints.check()


def _without_time(counters: Mapping[str, float]) -> dict[str, float]:
    """Returns the counters without the time, which passes even if nothing happens."""
    return {name: value for name, value in counters.items() if name != "time_s"}
