"""What surrounds an optimisation step, in one fixed order:
evaluate, keep the best, save, record, sync."""

from __future__ import annotations

import math
from dataclasses import asdict

from border_cli.core.actors import ActorManager
from border_cli.core.clock import Clock
from border_cli.core.config import TrainerConfig
from border_cli.core.interfaces import Agent
from border_cli.core.judge import Judge
from border_cli.core.output import Checkpoints, Progress, RecordStep
from border_cli.core.replay import ReplayBuffer
from border_cli.core.stop import Heartbeat
from border_cli.core.timing import Timing
from border_cli.core.types import Metrics, Update
from border_cli.trainer.counters import Counters, Window
from border_cli.trainer.evaluating import Evaluating, Verdict
from border_cli.trainer.recording import Recording
from border_cli.trainer.saving import Saving
from border_cli.trainer.update_log import UpdateLog

LOOK_EVERY = 10  # updates between two looks for the verdict of an evaluation in the background


class PostStep:
    """Owned by the learner's thread; the only one that evaluates, saves, records and publishes."""

    def __init__(
        self,
        config: TrainerConfig,
        *,
        agent: Agent,
        replay_buffer: ReplayBuffer,
        actors: ActorManager,
        judge: Judge,
        checkpoints: Checkpoints,
        recording: Recording,
        clock: Clock,
    ) -> None:
        self.config = config
        self._agent = agent
        self._replay_buffer = replay_buffer
        self._actors = actors
        self._checkpoints = checkpoints
        self._recording = recording
        self._clock = clock
        self._updates = UpdateLog()
        self._intervals = (
            *(config.eval_interval, config.save_interval),
            *(config.record_interval, config.sync_interval),
        )
        self._next_due = 0.0  # opt steps; no interval ends before
        self.heartbeat = Heartbeat("learner")
        self.timing = Timing(clock)
        self.saving = Saving(config.save_every_s, clock=clock, timing=self.timing)
        self.counters = Counters()
        self.evaluating = Evaluating(
            judge,
            agent=agent,
            checkpoints=checkpoints,
            saving=self.saving,
            threshold=config.stop_at_score,
        )
        self.scores = self.evaluating.scores
        self.begin()

    def begin(self) -> None:
        """Starts the clocks."""
        self.started_s = self._clock.now_s()
        self.window = Window(self.started_s, self.counters)
        self.timing.begin()
        self.saving.begin()

    def after_update(self, update: Update) -> None:
        """Does all that is due at this number of optimisation steps.

        Where nothing is due it costs three comparisons; the clock is that of the update's end.
        """
        opt_steps, now_s = self.counters.opt_steps, self.timing.since_s
        self._updates.add(opt_steps, update.metrics)
        if opt_steps >= self._next_due or self.saving.is_overdue(now_s):
            self._do_what_is_due(opt_steps, now_s)
        if self._recording.due(now_s):
            self.show("learning")

    def _do_what_is_due(self, opt_steps: int, now_s: float) -> None:
        config = self.config
        row: dict[str, float] = {}
        if _due(opt_steps, config.eval_interval):
            self._submit()
        verdict = self._collect() if self.evaluating.pending else None
        if verdict is not None and verdict.step.opt_steps == opt_steps:
            row |= verdict.metrics
        elif verdict is not None:
            self._write(verdict.metrics, verdict.step)
        if _due(opt_steps, config.save_interval) or self.saving.is_overdue(now_s):
            self.save()
        if _due(opt_steps, config.record_interval):
            row |= self._window_metrics()
        if row:
            self._write(row)
        if _due(opt_steps, config.sync_interval):
            self.sync()
        ends = [(opt_steps // each + 1) * each for each in self._intervals if each]
        if self.evaluating.pending:
            ends.append(opt_steps + LOOK_EVERY)
        self._next_due = min(ends, default=math.inf)

    def finish(self) -> None:
        """The end of a run that reached it: evaluates and saves what was not yet."""
        row: dict[str, float] = self._window_metrics()
        if self.evaluating.pending:
            verdict = self._wait()
            self._write(verdict.metrics, verdict.step)
        final = self.scores.last_opt_steps != self.counters.opt_steps
        if final:
            self._submit()
            row |= self._wait().metrics
        self._write(row, final=final)
        self.save()

    def interrupted(self) -> None:
        """The end of a run that did not reach it: records the last window and saves."""
        self.show("stopping")
        self._write(self._window_metrics())
        self.save()

    def sync(self, *, warm_up: bool = False) -> None:
        """Publishes the newest weights to the actors (Border's SyncModel)."""
        with self.timing.section("sync"):
            self._actors.publish(
                self._agent.snapshot(env_steps=self.counters.env_steps, warm_up=warm_up)
            )

    def save(self) -> None:
        """Keeps a checkpoint, once per number of optimisation steps."""
        opt_steps, counters = self.counters.opt_steps, self._saved_counters()
        if self.saving.has(opt_steps):
            return
        self._updates.check()  # weights after a NaN are not worth keeping
        self.saving.checkpoint(
            opt_steps, lambda: self._checkpoints.save(self._agent.state_dict(), counters)
        )
        with self.timing.section("record"):
            self._recording.flush()

    def show(self, phase: str) -> None:
        """Tells the watchers where the run stands."""
        with self.timing.section("record"):
            progress = Progress(
                step=self._step,
                phase=phase,
                samples_total=self.counters.samples_total,
                gauges=self._recording.newest | self._gauges(),
            )
            self._recording.show(progress)

    def show_waiting(self, *, warm: bool) -> None:
        """Tells the watchers that the learner waits for samples."""
        if self._recording.due(self._clock.now_s()):
            self.show("learning" if warm else "warm-up")

    def _submit(self) -> None:
        self._updates.check()  # weights after a NaN are not worth judging
        in_line = not self.evaluating.judge.in_background
        if in_line:
            self.show("evaluating")
        with self.timing.section("evaluate"), self.heartbeat.waiting("the evaluation"):
            self.evaluating.submit(self._step, self._saved_counters())

    def _collect(self) -> Verdict | None:
        with self.timing.section("evaluate"):
            return self.evaluating.collect()

    def _wait(self) -> Verdict:
        self.show("evaluating")
        with self.timing.section("evaluate"), self.heartbeat.waiting("the evaluation"):
            return self.evaluating.wait()

    def _window_metrics(self) -> dict[str, float]:
        with self.timing.section("record"):
            metrics = self.window.close(
                self._clock.now_s(), self._actors.stats(), self.timing.seconds()
            )
            return metrics | self._updates.means() | self._gauges()

    def _write(self, row: Metrics, step: RecordStep | None = None, *, final: bool = False) -> None:
        with self.timing.section("record"):
            self._recording.write(step or self._step, row, final=final)

    def _gauges(self) -> dict[str, float]:
        fill = len(self._replay_buffer) / self._replay_buffer.capacity
        return {"async/buffer_fill": fill, **self._actors.gauges()}

    def _saved_counters(self) -> dict[str, float]:
        return asdict(self.counters) | {"time_s": self.elapsed_s}

    @property
    def elapsed_s(self) -> float:
        """Seconds since the run began."""
        return self._clock.now_s() - self.started_s

    @property
    def _step(self) -> RecordStep:
        return RecordStep(
            opt_steps=self.counters.opt_steps,
            env_steps=self.counters.env_steps,
            time_s=self.elapsed_s,
        )


def _due(opt_steps: int, interval: int) -> bool:
    return interval > 0 and opt_steps % interval == 0
