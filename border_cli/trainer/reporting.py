"""Rows of metrics for the recorders, and where the run stands for those who watch."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from border_cli.core.interfaces import ActorManager, ReplayBuffer
from border_cli.core.output import Progress, RecordStep
from border_cli.core.timing import Clock, Timing
from border_cli.core.types import Metrics, State
from border_cli.trainer.counters import Counters, Window
from border_cli.trainer.recording import Recording
from border_cli.trainer.saving import Saving
from border_cli.trainer.update_log import UpdateLog


class Reporting:
    """Counters, clocks and what follows from them; owned by the learner's thread."""

    def __init__(
        self,
        recording: Recording,
        *,
        replay_buffer: ReplayBuffer,
        actors: ActorManager,
        saving: Saving,
        clock: Clock,
    ) -> None:
        self.recording = recording
        self._replay_buffer = replay_buffer
        self._actors = actors
        self._saving = saving
        self._clock = clock
        self._past_s = 0.0  # of the run before it was resumed
        self._past_seconds: Mapping[str, float] = {}
        self.timing = Timing(clock)
        self.counters = Counters()
        self.window = Window(self.counters)
        self.updates = UpdateLog()
        self.begin()

    def begin(self) -> None:
        """Starts the clocks, of a resumed run where they stopped."""
        now_s = self._clock.now_s()
        self.started_s = now_s - self._past_s
        self.timing.begin(self._past_seconds)
        self.window.begin(now_s, self._actors.stats(), self.timing.seconds())

    @property
    def elapsed_s(self) -> float:
        """Seconds that the run has taken so far, in all its attempts."""
        return self._clock.now_s() - self.started_s

    @property
    def step(self) -> RecordStep:
        """Where in the run a row belongs that is written now."""
        return RecordStep(
            opt_steps=self.counters.opt_steps,
            env_steps=self.counters.env_steps,
            time_s=self.elapsed_s,
        )

    def write(self, row: Metrics, step: RecordStep | None = None, *, final: bool = False) -> None:
        """Records one row, of now or of an earlier step."""
        with self.timing.section("record"):
            self.recording.write(step or self.step, row, final=final)

    def flush(self) -> None:
        """Makes what was recorded readable by others."""
        with self.timing.section("record"):
            self.recording.flush()

    def show_if_due(self, phase: str, now_s: float) -> None:
        """Tells the watchers again how it goes, several times a second."""
        if self.recording.due(now_s):
            self.show(phase)

    def show_waiting(self, *, warm: bool) -> None:
        """Tells the watchers that the learner waits for samples."""
        self.show_if_due("learning" if warm else "warm-up", self._clock.now_s())

    def show(self, phase: str) -> None:
        """Tells the watchers where the run stands."""
        with self.timing.section("record"):
            progress = Progress(
                step=self.step,
                phase=phase,
                samples_total=self.counters.samples_total,
                gauges=self.recording.newest | self._gauges(),
                problem=self._saving.report.problem or self.recording.problem,
            )
            self.recording.show(progress)

    def close_window(self) -> dict[str, float]:
        """The metrics since the last row; a new window begins."""
        with self.timing.section("record"):
            metrics = self.window.close(
                self._clock.now_s(), self._actors.stats(), self.timing.seconds()
            )
            return metrics | self.updates.means() | self._gauges()

    def _gauges(self) -> dict[str, float]:
        fill = len(self._replay_buffer) / self._replay_buffer.capacity
        return {"async/buffer_fill": fill, **self._actors.gauges()}

    def saved_counters(self) -> dict[str, float]:
        """The counters and the time, as a checkpoint has them."""
        return asdict(self.counters) | {"time_s": self.elapsed_s}

    def state_dict(self) -> State:
        """What `saved_counters` leaves out."""
        return {
            "window": self.window.state_dict(),
            "updates": self.updates.state_dict(),
            "seconds": self.timing.seconds(),
            "newest": {k: v for k, v in self.recording.newest.items() if math.isfinite(v)},
            "recorders": self.recording.positions(),
        }

    def load_state_dict(self, state: Mapping[str, Any], counters: Mapping[str, float]) -> None:
        """Restores both, and drops what was recorded since; `begin` follows."""
        self.counters.opt_steps = int(counters["opt_steps"])
        self.counters.env_steps = int(counters["env_steps"])
        self.counters.samples_total = int(counters["samples_total"])
        # Runs that were begun before there was such a count have none.
        self.counters.out_of_bounds = int(counters.get("out_of_bounds", 0))
        self._past_s = float(counters["time_s"])
        self._past_seconds = state["seconds"]
        self.window.load_state_dict(state["window"])
        self.updates.load_state_dict(state["updates"])
        self.recording.newest.update(state["newest"])
        self.recording.rewind(state["recorders"])
