"""What surrounds an optimisation step, in one fixed order:
evaluate, keep the best, save, record, sync."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import asdict

from border_cli.core.clock import Clock
from border_cli.core.config import TrainerConfig
from border_cli.core.interfaces import ActorManager, Agent, Evaluator, Policy, ReplayBuffer
from border_cli.core.output import Checkpoints, Progress, RecordStep
from border_cli.core.stop import Heartbeat
from border_cli.core.types import Update
from border_cli.trainer.counters import Counters, Window
from border_cli.trainer.recording import Recording
from border_cli.trainer.scores import Scores
from border_cli.trainer.update_log import UpdateLog

log = logging.getLogger(__name__)


class PostStep:
    """Owned by the learner's thread; the only one that evaluates, saves, records and publishes."""

    def __init__(
        self,
        config: TrainerConfig,
        *,
        agent: Agent,
        replay_buffer: ReplayBuffer,
        actors: ActorManager,
        evaluator: Evaluator,
        evaluation_policy: Policy,
        checkpoints: Checkpoints,
        recording: Recording,
        clock: Clock,
    ) -> None:
        self.config = config
        self._agent = agent
        self._replay_buffer = replay_buffer
        self._actors = actors
        self._evaluator = evaluator
        self._policy = evaluation_policy
        self._checkpoints = checkpoints
        self._recording = recording
        self._clock = clock
        self._updates = UpdateLog()
        self._saved_opt_steps: int | None = None
        self.heartbeat = Heartbeat("learner")
        self.counters = Counters()
        self.scores = Scores()
        self.save_failures = 0
        self.begin()

    def begin(self) -> None:
        """Starts the clocks."""
        self.started_s = self._saved_s = self._clock.now_s()
        self.window = Window(self.started_s, self.counters)

    def after_update(self, update: Update) -> None:
        """Does all that is due at this number of optimisation steps."""
        config, opt_steps = self.config, self.counters.opt_steps
        self._updates.add(opt_steps, update.metrics)
        row: dict[str, float] = {}
        if _due(opt_steps, config.eval_interval):
            row |= self._evaluate()
        if _due(opt_steps, config.save_interval) or self._time_to_save():
            self.save()
        if _due(opt_steps, config.record_interval):
            row |= self._window_metrics()
        if row:
            self._recording.write(self._step, row)
        if _due(opt_steps, config.sync_interval):
            self.sync()
        if self._recording.due():
            self.show("learning")

    def finish(self) -> None:
        """The end of a run that reached it: evaluates and saves what was not yet."""
        row: dict[str, float] = self._window_metrics()
        final = self.scores.last_opt_steps != self.counters.opt_steps
        if final:
            row |= self._evaluate()
        self._recording.write(self._step, row, final=final)
        self.save()

    def interrupted(self) -> None:
        """The end of a run that did not reach it: records the last window and saves."""
        self.show("stopping")
        self._recording.write(self._step, self._window_metrics())
        self.save()

    def sync(self, *, warm_up: bool = False) -> None:
        """Publishes the newest weights to the actors (Border's SyncModel)."""
        self._actors.publish(
            self._agent.snapshot(env_steps=self.counters.env_steps, warm_up=warm_up)
        )

    def save(self) -> None:
        """Keeps a checkpoint, once per number of optimisation steps."""
        if self._saved_opt_steps == self.counters.opt_steps:
            return
        self._updates.check()  # weights after a NaN are not worth keeping
        counters = self._saved_counters()
        saved = self._try_save(lambda: self._checkpoints.save(self._agent.state_dict(), counters))
        self._saved_s = self._clock.now_s()
        if saved:
            self._saved_opt_steps = self.counters.opt_steps
        self._recording.flush()

    def show(self, phase: str) -> None:
        """Tells the watchers where the run stands."""
        gauges = self._recording.newest | self._gauges()
        progress = Progress(
            step=self._step,
            phase=phase,
            samples_total=self.counters.samples_total,
            gauges=gauges,
        )
        self._recording.show(progress)

    def show_waiting(self, *, warm: bool) -> None:
        """Tells the watchers that the learner waits for samples."""
        if self._recording.due():
            self.show("learning" if warm else "warm-up")

    def _evaluate(self) -> dict[str, float]:
        self._updates.check()
        self.show("evaluating")
        self._policy.load_snapshot(self._agent.snapshot(env_steps=self.counters.env_steps))
        with self.heartbeat.waiting("the evaluation"):
            evaluation = self._evaluator.evaluate(self._policy)
        opt_steps = self.counters.opt_steps
        if self.scores.add(evaluation.score, opt_steps, self.config.stop_at_score):
            counters = self._saved_counters()
            state = self._agent.state_dict()
            self._try_save(lambda: self._checkpoints.save_best(state, counters, evaluation))
        return dict(evaluation.metrics)

    def _window_metrics(self) -> dict[str, float]:
        metrics = self.window.close(self._clock.now_s(), self._actors.stats())
        return metrics | self._updates.means() | self._gauges()

    def _gauges(self) -> dict[str, float]:
        fill = len(self._replay_buffer) / self._replay_buffer.capacity
        return {"async/buffer_fill": fill, **self._actors.gauges()}

    def _saved_counters(self) -> dict[str, float]:
        return asdict(self.counters) | {"time_s": self.elapsed_s}

    def _time_to_save(self) -> bool:
        every_s = self.config.save_every_s
        return every_s is not None and self._clock.now_s() - self._saved_s >= every_s

    def _try_save(self, action: Callable[[], None]) -> bool:
        try:
            action()
        except OSError as error:
            self.save_failures += 1
            log.error(
                "a checkpoint could not be written (%s); training goes on with the one before it, "
                "%d failures so far", error, self.save_failures,
            )  # fmt: skip
            return False
        return True

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
