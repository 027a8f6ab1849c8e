"""The training loop: collecting samples, updating, and everything that follows an update."""

from __future__ import annotations

import logging
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from types import MappingProxyType
from typing import Any, Protocol

from border_cli.core.interfaces import (
    ActorManager,
    ActorStats,
    Agent,
    EvaluationRunner,
    ReplayBuffer,
)
from border_cli.core.output import (
    Checkpoints,
    Progress,
    RecordStep,
    Resumption,
    RunState,
    TrainerStats,
)
from border_cli.core.spaces import EnvSpec
from border_cli.core.stop import Heartbeat, SaveFlag, StopFlag
from border_cli.core.timing import Clock
from border_cli.core.types import Episode, Metrics, Snapshot, State, Update
from border_cli.errors import CheckpointError, NotFinite, RunDeleted
from border_cli.settings.run import TrainerConfig
from border_cli.trainer.callbacks import Callbacks
from border_cli.trainer.due import Intervals, Saving, fraction_done, limit_reached
from border_cli.trainer.evaluating import EpisodeLimit, Evaluated, Evaluations
from border_cli.trainer.intake import Intake
from border_cli.trainer.metrics import (
    NO_SCHEDULES,
    Counters,
    MetricsWindow,
    RunClock,
    Schedules,
    UpdateLog,
    check_weights,
    values_of,
)
from border_cli.trainer.recorder_set import RecorderSet

log = logging.getLogger(__name__)

SHOW_EVERY_S = 0.2
POLL_EVERY = 10  # updates between two polls of a background evaluation while nothing is due


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnerParts:
    """The components that the learner's thread uses; built by the caller."""

    agent: Agent
    replay_buffer: ReplayBuffer
    actors: ActorManager
    evaluation_runner: EvaluationRunner
    checkpoints: Checkpoints
    recording: RecorderSet
    clock: Clock
    stop: StopFlag
    save: SaveFlag
    # Whether the agent starts with weights of another run. If so, actors use them even in the
    # warm-up, and explore as at the end of their schedules.
    starts_trained: bool = False
    # Receives the counters of each submitted checkpoint.
    on_saved: Callable[[Mapping[str, float]], None] = lambda _: None
    episode_limit: EpisodeLimit = field(default_factory=EpisodeLimit)  # of evaluated episodes
    callbacks: Callbacks = field(default_factory=Callbacks)


class Stateful(Protocol):
    """A part of the run whose state is saved in checkpoints."""

    def state_dict(self) -> State: ...

    def load_state_dict(self, state: Mapping[str, Any]) -> None: ...


class Trainer(ABC):
    """Base class of trainers. Owns agent, replay buffer, counters, clock, heartbeat and scores; the
    learner's thread calls every method.

    Subclasses differ in `collect`: where samples come from, and when an update may follow.
    """

    waits_as = "warm-up"  # name of the phase before the first update

    def __init__(
        self,
        config: TrainerConfig,
        *,
        parts: LearnerParts,
        batch_size: int,
        spec: EnvSpec,
        schedules: Schedules = NO_SCHEDULES,
    ) -> None:
        """`schedules`: recorded with the metrics."""
        self.config = config
        self._parts = parts
        self._agent, self._replay_buffer = parts.agent, parts.replay_buffer
        self._actors, self._callbacks = parts.actors, parts.callbacks
        self._checkpoints, self._recorders = parts.checkpoints, parts.recording
        self._batch_size, self._schedules = batch_size, schedules
        self._uses_priorities = parts.replay_buffer.uses_priorities
        self._on_update = parts.callbacks.hook("on_update")
        self._on_evaluation = parts.callbacks.hook("on_evaluation")
        self.ended_by: str | None = None  # limit that was reached, or `callback NAME: REASON`
        self.counters = Counters()
        self.clock = RunClock(parts.clock)
        self.heartbeat = Heartbeat("learner")
        self._window = MetricsWindow(self.counters, spec.info_metrics)
        self._updates = UpdateLog()
        self._intake = Intake(
            parts.agent, parts.replay_buffer, counters=self.counters, window=self._window,
            observation=spec.observation, on_episode=self._episode_hook(),
        )  # fmt: skip
        self.evaluations = Evaluations(
            parts.evaluation_runner, agent=parts.agent, limit=parts.episode_limit,
            threshold=config.stop_at_score, timing=self.clock.timing, heartbeat=self.heartbeat,
        )  # fmt: skip
        parts.evaluation_runner.on_step(self._show_evaluating)
        self.scores = self.evaluations.scores
        self._intervals = Intervals(config, self.counters)
        self._saving = Saving(
            config, checkpoints=parts.checkpoints, flag=parts.save, clock=parts.clock,
            heartbeat=self.heartbeat, callbacks=parts.callbacks, on_saved=parts.on_saved,
        )  # fmt: skip
        self._shown_s = -math.inf
        self._published: Snapshot | None = None  # newest weights of the actors
        self._resumed = False  # whether the run continues from a checkpoint
        self._unfinished = False  # whether the due actions of this step are incomplete
        self._stopped = False  # whether the actors have been stopped

    def train(self) -> list[ActorStats]:
        """Trains until the run ends, saves its state, and returns the counters of the actors.

        Must be called within the manager's `with` block and the agent's `learner_thread`.
        """
        self.heartbeat.claim()
        self.clock.begin()
        timing = self.clock.timing
        self._window.begin(timing.since_s, self._actors.stats(), timing.seconds())
        self._saving.begin()
        try:
            self._start()
            while not self.done():
                self.step()
            self._show("stopping")
            self._save_last()
            self._finish()
        except (NotFinite, RunDeleted):
            # Save nothing: the weights may be invalid, or somebody has deleted files of the run.
            raise
        except BaseException:
            self._save_after_failure()
            raise
        finally:
            self._saving.wait_until_written()
        return self._actors.stats()

    def step(self) -> None:
        """Collects samples, and performs one update if there are enough."""
        self._parts.stop.check()
        if self.collect():
            update = self._update()
            if update is not None:
                self._after_update(update)
        else:
            phase = "learning" if self.counters.opt_steps else self.waits_as
            self._show_if_due(phase, self.clock.timing.since_s)
            opt_steps, now_s = self.counters.opt_steps, self.clock.timing.since_s
            if self._saving.is_due(opt_steps, now_s, by_steps=False):
                self._save()

    @abstractmethod
    def collect(self) -> bool:
        """Receives samples; returns whether an update may follow."""

    def _update(self) -> Update | None:
        """Performs one update; returns None if the agent skipped it."""
        self.heartbeat.beat()
        timing = self.clock.timing
        timing.enter("sample")
        self._replay_buffer.update_schedules(self._fraction_done())
        batch = self._replay_buffer.sample(self._batch_size)
        timing.enter("update")
        update = self._agent.update(batch)
        if self._uses_priorities and update is not None:
            timing.enter("priorities")
            self._replay_buffer.update_priorities(batch.index, update.td_error())
        timing.enter("other")
        self.counters.opt_steps = self._agent.opt_steps
        return update

    def _after_update(self, update: Update) -> None:
        """Performs everything that follows an update, the checkpoint last.

        After most updates nothing is due, which costs only a few comparisons. The clock
        reading from the end of the update is reused.
        """
        opt_steps, now_s = self.counters.opt_steps, self.clock.timing.since_s
        self._updates.add(opt_steps, update.metrics)
        if self._on_update is not None:
            self._on_update(self.record_step, MappingProxyType(dict(update.metrics)))
        due = self._intervals.due()
        polls = self.evaluations.pending and opt_steps % POLL_EVERY == 0
        if due or polls or self._saving.is_urgent(now_s):
            self._evaluate_record_publish(due)
            if self._saving.is_due(opt_steps, now_s, by_steps="save" in due):
                self._save()
        self._show_if_due("learning", now_s)

    def _evaluate_record_publish(self, due: Sequence[str]) -> None:
        """Performs what is due, in this order; a resume after an interruption repeats all of it."""
        self._checkpoints.check()
        self._unfinished = True
        row: dict[str, float] = {}
        if "eval" in due:
            self._submit_evaluation()
        evaluated = self.evaluations.collect()
        if evaluated is not None:
            self._save_best(evaluated)
            row |= self._report(evaluated)
        if "record" in due:
            row |= self._close_window()
        if row:
            self._record(row)
        if "sync" in due:
            self.publish()
        self._intervals.done()
        self._unfinished = False

    def _submit_evaluation(self) -> None:
        self._check()
        longest = self._window.longest_episode
        self.evaluations.limit.decide(longest, self.counters.env_steps)
        if not self.evaluations.in_background:
            self._show("evaluating")
        self.evaluations.submit(self.record_step, self._saved_counters())

    def _save_best(self, evaluated: Evaluated) -> None:
        """Saves the evaluated agent if its score is the best so far."""
        if evaluated.best is not None:
            with self.clock.timing.section("evaluate"):
                self._checkpoints.save_best(
                    evaluated.best, evaluated.counters, evaluated.evaluation
                )

    def _report(self, evaluated: Evaluated) -> Metrics:
        """Reports an evaluation to callbacks and recorders.

        Returns its metrics for the row of this step. If the evaluated weights are of an earlier
        step, records the metrics there and returns none.
        """
        step, evaluation = evaluated.step, evaluated.evaluation
        if self._on_evaluation is not None:
            with self.heartbeat.waiting("a callback"):
                self._on_evaluation(step, evaluation)
        if evaluation.film is not None:
            with self.clock.timing.section("record"):
                self._recorders.film(step, evaluation.film)
        if step.opt_steps == self.counters.opt_steps:
            return evaluation.metrics
        self._record(evaluation.metrics, step)
        return {}

    def _close_window(self) -> dict[str, float]:
        """Returns the metrics since the last row, and starts a new window."""
        timing = self.clock.timing
        with timing.section("record"):
            window = self._window.close(timing.since_s, self._actors.stats(), timing.seconds())
            schedule_values = values_of(self._schedules, self.counters, self._fraction_done())
            return window | self._updates.means() | self._gauges() | schedule_values

    def _fraction_done(self) -> float:
        return fraction_done(self.config, self.counters, self.clock.elapsed_s)

    def _record(self, row: Metrics, step: RecordStep | None = None, *, final: bool = False) -> None:
        """Records one row, for the current step or an earlier one."""
        with self.clock.timing.section("record"):
            self._recorders.write(step or self.record_step, row, final=final)

    @abstractmethod
    def publish(self) -> None:
        """Publishes the newest weights to the actors (Border's SyncModel)."""

    def _save(self) -> None:
        """Submits a checkpoint to the writer thread, while the actors continue."""
        self._check()
        with self.clock.timing.section("save"):
            self._saving.hand_over(self._state(), self.record_step)

    def _check(self) -> None:
        """Raises `NotFinite` if a loss or a weight is NaN or infinite, so that it is not saved."""
        self._updates.check()
        check_weights(self._agent)

    def _start(self) -> None:
        """Starts the actors, and completes the step at which a resumed run stopped.

        If a background evaluation was running then, it is repeated with the resumed weights.
        """
        if self.evaluations.was_pending:
            self._submit_evaluation()
            if not self.evaluations.in_background:
                self._record(self._wait_for_evaluation())
        self.start_actors()
        if self._resumed:
            self._saving.announce(self.record_step)
        if self._unfinished:
            self._evaluate_record_publish(self._intervals.due())

    @abstractmethod
    def start_actors(self) -> None:
        """Publishes weights to the actors, and lets them collect samples."""

    def done(self) -> bool:
        """Returns whether a limit is reached or a callback has stopped the run; sets `ended_by`."""
        self.ended_by = self._callbacks.stopped_by or self.limit_reached()
        return self.ended_by is not None

    def limit_reached(self) -> str | None:
        """Returns the name of the limit that ends the run now."""
        return limit_reached(self.config, self.counters, self.scores, self.clock.elapsed_s)

    def _save_last(self) -> None:
        """Stops the actors, and saves the state from which a resume continues, unless the newest
        checkpoint is current.

        Reproducible actors are saved with what they have gathered, as if they had not been stopped.
        The messages in flight of other actors are pushed first.
        """
        if self._actors.reproducible:
            if self._stopped:  # saved before their last messages were pushed
                return
            self._intake.take(self._actors.undelivered())  # of a round that an error interrupted
        else:
            self._stop_actors()
        self._check()
        with self.clock.timing.section("save"):
            self._saving.wait_until_written()
            if not self._saving.is_current(self._saved_counters()):
                self._saving.hand_over(self._state(), self.record_step)
        self._stop_actors()

    def _stop_actors(self) -> None:
        self._stopped = True
        timing = self.clock.timing
        with timing.section("other"), self.heartbeat.waiting("the actors to stop"):
            messages = self._actors.stop()
        with timing.section("push"):
            self._intake.take(messages)

    def _finish(self) -> None:
        """Records the last window, and evaluates the last weights if they were not evaluated yet.

        A resumed run continues from the state before this, and replaces everything recorded here.
        """
        row = self._close_window()
        if self.evaluations.pending:
            row |= self._wait_for_evaluation()
        final = self.scores.last_opt_steps != self.counters.opt_steps
        if final:
            self._submit_evaluation()
            row |= self._wait_for_evaluation()
        self._record(row, final=final)

    def _wait_for_evaluation(self) -> Metrics:
        self._show("evaluating")
        evaluated = self.evaluations.wait()
        self._save_best(evaluated)
        return self._report(evaluated)

    def _save_after_failure(self) -> None:
        """Saves after a failure; a second failure is only logged and does not hide the first."""
        try:
            self._show("stopping")
            self._save_last()
            self._record(self._close_window())
        except RunDeleted:
            raise
        except Exception as error:
            log.error("could not save the final checkpoint", exc_info=error)

    @property
    def record_step(self) -> RecordStep:
        """The current position in the run."""
        return RecordStep(
            opt_steps=self.counters.opt_steps,
            env_steps=self.counters.env_steps,
            time_s=self.clock.elapsed_s,
        )

    def _episode_hook(self) -> Callable[[Episode], None] | None:
        hook = self._callbacks.hook("on_episode")
        return None if hook is None else lambda episode: hook(self.record_step, episode)

    def _gauges(self) -> dict[str, float]:
        fill = len(self._replay_buffer) / self._replay_buffer.capacity
        return {"async/buffer_fill": fill, **self._actors.gauges()}

    def _show(self, phase: str) -> None:
        """Shows the progress of the run in the recorders."""
        self._shown_s = self._parts.clock.now_s()
        with self.clock.timing.section("record"):
            progress = Progress(
                step=self.record_step,
                phase=phase,
                samples_total=self.counters.samples_total,
                gauges=self._recorders.newest | self._gauges(),
                problem=self._checkpoints.report.problem or self._recorders.problem,
            )
            self._recorders.show(progress)

    def _show_if_due(self, phase: str, now_s: float) -> None:
        """Shows the progress if `SHOW_EVERY_S` has passed since the last time."""
        if now_s - self._shown_s >= SHOW_EVERY_S:
            self._show(phase)

    def _show_evaluating(self) -> None:
        self._show_if_due("evaluating", self._parts.clock.now_s())

    def stats(self) -> TrainerStats:
        """Returns the learner's counters, scores and times so far."""
        scores, recorders, saved = self.scores, self._recorders, self._checkpoints.report
        return TrainerStats(
            **asdict(self.counters),
            duration_s=self.clock.elapsed_s,
            evaluations=scores.evaluations,
            best_score=scores.best,
            best_opt_steps=scores.best_opt_steps,
            last_score=scores.last,
            save_failures=saved.failures,
            recorder_failures=recorders.failures,
            recorders_switched_off=dict(recorders.switched_off),
            saves=saved.written,
            saves_skipped=self._saving.skipped,
            save_seconds=saved.seconds,
            seconds=self.clock.timing.seconds(),
        )

    def _saved_counters(self) -> dict[str, float]:
        """Returns the counters and the time, as saved in a checkpoint."""
        return asdict(self.counters) | {"time_s": self.clock.elapsed_s}

    def _stateful(self) -> dict[str, Stateful]:
        """Returns the parts whose state is saved, by their names in a checkpoint."""
        return {
            "replay_buffer": self._replay_buffer,
            "actors": self._actors,
            "intervals": self._intervals,
            "evaluating": self.evaluations,
            "window": self._window,
            "updates": self._updates,
            "clock": self.clock,
            "callbacks": self._callbacks,
        }

    def _state(self) -> RunState:
        """Returns the complete state of the run between two steps."""
        published = self._published
        return RunState(
            counters=self._saved_counters(),
            agent=self._agent.state_dict(),
            run={
                **{name: part.state_dict() for name, part in self._stateful().items()},
                "weights": published and asdict(published),
                "unfinished": self._unfinished,
                "newest": dict(self._recorders.newest),
                "recorders": self._recorders.positions(),
            },
            replay_buffer=self._replay_buffer,
        )

    def resume(self, saved: Resumption) -> None:
        """Continues from a checkpoint; called before `train`, once everything is built.

        Raises CheckpointError if it does not fit; recorded metrics are then left untouched.
        """
        run = saved.run
        try:
            self.counters.load(saved.counters)
            self._agent.load_state_dict(saved.agent)
            for name, part in self._stateful().items():
                part.load_state_dict(run[name])
            if saved.load_rows is not None:
                saved.load_rows(self._replay_buffer)
            if run["weights"] is not None:
                self._published = Snapshot(**run["weights"])
            self._unfinished, self._resumed = bool(run["unfinished"]), True
            self._recorders.newest.update(run["newest"])
            self._recorders.rewind(run["recorders"])  # last: drops recorded rows
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise CheckpointError(
                f"the saved state of the run is incompatible with this version: {error!r}"
            ) from error


class OfflineTrainer(Trainer):
    """Updates without actors: all transitions are already in the replay buffer."""

    def collect(self) -> bool:
        """Returns True: there are no actors, so nothing arrives."""
        return True

    def start_actors(self) -> None:
        """Does nothing: there are no actors."""

    def publish(self) -> None:
        """Does nothing: there are no actors."""
