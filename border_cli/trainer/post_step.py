"""The steps after an update, in a fixed order: evaluate, keep the best, record, publish, save; and
how a run comes back to such a moment."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from types import MappingProxyType

from border_cli.core.interfaces import ActorManager, Agent, EvaluationRunner, ReplayBuffer
from border_cli.core.output import Checkpoints, Resumption, RunState
from border_cli.core.stop import Heartbeat, SaveFlag, StopFlag
from border_cli.core.timing import Clock
from border_cli.core.types import PAST_SCHEDULES, Metrics, Snapshot, Update
from border_cli.errors import CheckpointError
from border_cli.settings.run import TrainerConfig, Warmup
from border_cli.trainer.callbacks import Callbacks
from border_cli.trainer.evaluating import EpisodeLimit, Evaluated, Evaluations
from border_cli.trainer.intake import Intake
from border_cli.trainer.intervals import Intervals
from border_cli.trainer.metrics import Reporting, check_weights
from border_cli.trainer.recorder_set import RecorderSet

log = logging.getLogger(__name__)

POLL_EVERY = 10  # updates between two polls of an evaluation in the background
POLL_S = 0.2  # between two polls of the disk


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnerParts:
    """Everything that the learner's thread works with; built by the caller."""

    agent: Agent
    replay_buffer: ReplayBuffer
    actors: ActorManager
    evaluation_runner: EvaluationRunner
    checkpoints: Checkpoints
    recording: RecorderSet
    clock: Clock
    stop: StopFlag
    save: SaveFlag
    # The agent has the weights of another run, so actors use them in the warm-up, too, and explore
    # as at the end of their schedules.
    starts_trained: bool = False
    # Gets the counters of each checkpoint that is begun.
    on_saved: Callable[[Mapping[str, float]], None] = lambda _: None
    episode_limit: EpisodeLimit = field(default_factory=EpisodeLimit)  # of evaluations
    callbacks: Callbacks = field(default_factory=Callbacks)


class SaveSchedule:
    """When checkpoints are due; owned by the learner's thread.

    One that falls due while the one before is still being written is left out and counted; one that
    a signal requested waits until it can be written.
    """

    def __init__(self, config: TrainerConfig, checkpoints: Checkpoints, flag: SaveFlag) -> None:
        self._every_s = config.save_every_s
        self._checkpoints = checkpoints
        self._flag = flag
        self._saved_s = 0.0
        self.skipped = 0

    def begin(self, now_s: float) -> None:
        """Starts the time between two checkpoints."""
        self._saved_s = now_s

    @property
    def requested(self) -> bool:
        """Whether a signal requested a checkpoint that can be written now."""
        return self._flag.requested and not self._checkpoints.busy

    def is_urgent(self, now_s: float) -> bool:
        """Whether one is due that no number of updates announces."""
        overdue = self._every_s is not None and now_s - self._saved_s >= self._every_s
        return overdue or self._flag.requested

    def is_due(self, opt_steps: int, now_s: float, *, by_steps: bool) -> bool:
        """Whether it is time for one, by the interval or else; left out and counted where the disk
        is not ready."""
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


class PostStep:
    """Owned by the learner's thread; the only one that evaluates, records, publishes and saves.

    A disk that does not take a checkpoint does not end a run. The checkpoint comes last, when all
    else of the step is done, and the last one of a run is never left out.
    """

    def __init__(
        self,
        config: TrainerConfig,
        parts: LearnerParts,
        *,
        reporting: Reporting,
        intake: Intake,
    ) -> None:
        self.config = config
        self._agent = parts.agent
        self._replay_buffer = parts.replay_buffer
        self._actors = parts.actors
        self._checkpoints = parts.checkpoints
        self._save_flag = parts.save
        self._clock = parts.clock
        self._intake = intake
        self._starts_trained = parts.starts_trained
        self._on_saved = parts.on_saved
        self._callbacks = parts.callbacks
        self._on_update = parts.callbacks.hook("on_update")
        self._on_evaluation = parts.callbacks.hook("on_evaluation")
        self._on_checkpoint = parts.callbacks.hook("on_checkpoint")
        self._resumed = False  # the checkpoint is not announced yet
        self._intervals = Intervals(config, reporting.counters)
        self.refill = 0  # samples made once more, because a resume found no transitions
        self._unfinished = False  # what is due at this step is being done
        self._published: Snapshot | None = None  # the newest weights of the actors
        self._saved: dict[str, float] | None = None  # counters of the newest checkpoint
        self.heartbeat = Heartbeat("learner")
        self.schedule = SaveSchedule(config, parts.checkpoints, parts.save)
        self.evaluations = Evaluations(
            parts.evaluation_runner,
            agent=parts.agent,
            checkpoints=parts.checkpoints,
            threshold=config.stop_at_score,
            limit=parts.episode_limit,
        )
        parts.evaluation_runner.on_step(self._show_evaluating)
        self.scores = self.evaluations.scores
        self.reporting = reporting
        self.timing = reporting.timing
        self.counters = reporting.counters

    def begin(self) -> None:
        """Starts the clocks."""
        self.reporting.begin()
        self.schedule.begin(self._clock.now_s())

    def start_actors(self) -> None:
        """Publishes the first weights, or those that were the newest at the checkpoint.

        An evaluation that was under way in the background is made with the resumed weights.
        """
        if self.evaluations.was_pending:
            self._submit()
        if self._published is None:
            self.sync(warm_up=True)
        else:
            self._actors.publish(self._published)

    def after_update(self, update: Update) -> None:
        """Does all that follows an update, the checkpoint last.

        For most updates nothing is due, which costs a few comparisons; the clock is that of the
        update's end.
        """
        opt_steps, now_s = self.counters.opt_steps, self.timing.since_s
        if self.reporting.updates.add(opt_steps, update.metrics):
            self.reporting.updates.check()
        if self._on_update is not None:
            self._on_update(self.reporting.step, MappingProxyType(dict(update.metrics)))
        save = False
        polls = self.evaluations.pending and opt_steps % POLL_EVERY == 0
        if self._intervals.any_due() or polls or self.schedule.is_urgent(now_s):
            by_steps = self._intervals.is_due("save")
            self._run_due()
            save = self.schedule.is_due(opt_steps, now_s, by_steps=by_steps)
        self.reporting.show_if_due("learning", now_s)
        if save:
            self.save()

    def complete(self) -> None:
        """Does what was due where a run stopped before it was done, or its state was saved."""
        if self._resumed:
            self._announce_checkpoint()
        if self._unfinished:
            self._run_due()

    def _run_due(self) -> None:
        is_due = self._intervals.is_due
        self._checkpoints.check()
        self._unfinished = True
        row: dict[str, float] = {}
        if is_due("eval"):
            self._submit()
        if self.evaluations.pending:
            with self.timing.section("evaluate"):
                found = self.evaluations.collect()
            row |= self._metrics_of(found) if found is not None else {}
        if is_due("record"):
            row |= self.reporting.close_window()
        if row:
            self.reporting.write(row)
        if is_due("sync"):
            self.sync()
        self._intervals.done()
        self._unfinished = False

    def finish(self) -> None:
        """The end of a run that reached it: evaluates what was not yet.

        A resumed run continues from before it, and replaces all that is recorded here.
        """
        row: dict[str, float] = self.reporting.close_window()
        if self.evaluations.pending:
            row |= self._metrics_of(self._wait())
        final = self.scores.last_opt_steps != self.counters.opt_steps
        if final:
            self._submit()
            row |= self._metrics_of(self._wait())
        self.reporting.write(row, final=final)

    def interrupted(self) -> None:
        """The end of a run that did not reach it: records the last window."""
        self.reporting.write(self.reporting.close_window())

    def sync(self, *, warm_up: bool = False) -> None:
        """Publishes the newest weights to the actors (Border's SyncModel), where there are any."""
        if self._actors.idle:
            return
        trained = self._starts_trained
        with self.timing.section("sync"):
            self._published = self._agent.snapshot(
                env_steps=PAST_SCHEDULES if trained else self.counters.env_steps,
                warm_up=warm_up and not trained and self.config.warmup == Warmup.random,
            )
            self._actors.publish(self._published)

    def check(self) -> None:
        """Raises `NotFinite`: what follows from a NaN is not worth keeping."""
        self.reporting.updates.check()
        check_weights(self._agent)

    def _submit(self) -> None:
        self.check()
        self.evaluations.limit.decide(
            self.reporting.window.longest_episode, self.counters.env_steps
        )
        if not self.evaluations.runner.in_background:
            self.reporting.show("evaluating")
        with self.timing.section("evaluate"), self.heartbeat.waiting("the evaluation"):
            self.evaluations.submit(self.reporting.step, self.reporting.saved_counters())

    def _show_evaluating(self) -> None:
        self.reporting.show_if_due("evaluating", self._clock.now_s())

    def _wait(self) -> Evaluated:
        self.reporting.show("evaluating")
        with self.timing.section("evaluate"), self.heartbeat.waiting("the evaluation"):
            return self.evaluations.wait()

    def _metrics_of(self, found: Evaluated) -> Metrics:
        """What the row of this step records of an evaluation; one of an earlier step has a row of
        its own there."""
        step, evaluation = found
        self._tell(self._on_evaluation, step, evaluation)
        if evaluation.film is not None:
            self.reporting.film(evaluation.film, step)
        if step.opt_steps == self.counters.opt_steps:
            return evaluation.metrics
        self.reporting.write(evaluation.metrics, step)
        return {}

    def save(self) -> None:
        """Hands a checkpoint over to the thread that writes it, while the actors continue."""
        self.check()
        with self.timing.section("save"):
            self._hand_over(self._state())

    def save_last(self) -> None:
        """Hands over what a resume continues from, unless the newest checkpoint is of this moment;
        before all that only an end records."""
        self.check()
        with self.timing.section("save"):
            self.wait_until_written()
            if not self._is_saved(self.reporting.saved_counters()):
                self._hand_over(self._state())

    def wait_until_written(self) -> None:
        """Until everything is on the disk, or could not be written; raises `RunDeleted`."""
        with self.heartbeat.waiting("the disk"):
            written = self._checkpoints.report
            while not self._checkpoints.wait(POLL_S):
                if self._checkpoints.report != written:  # a large replay buffer takes its time
                    written = self._checkpoints.report
                    self.heartbeat.beat()
        self._checkpoints.check()

    def _hand_over(self, state: RunState) -> None:
        if self._checkpoints.save(state):
            self._save_flag.clear()
            self._saved = _position(state.counters)
            self._on_saved(state.counters)
            self._announce_checkpoint()
        self.schedule.begin(self._clock.now_s())

    def _announce_checkpoint(self) -> None:
        """Tells callbacks of the newest checkpoint, once it is on the disk."""
        if self._on_checkpoint is None:
            return
        self.wait_until_written()
        if self._checkpoints.report.problem is None:
            folder = self._checkpoints.folder(self.counters.opt_steps)
            self._tell(self._on_checkpoint, self.reporting.step, folder)

    def _tell(self, hook: Callable[..., None] | None, *what: object) -> None:
        """Calls a hook that may take its time, where callbacks have it."""
        if hook is not None:
            with self.heartbeat.waiting("a callback"):
                hook(*what)

    def _is_saved(self, counters: Mapping[str, float]) -> bool:
        """Whether the newest checkpoint is of this very moment and on the disk."""
        return self._checkpoints.report.problem is None and self._saved == _position(counters)

    def _state(self) -> RunState:
        """All of the run as it is between two steps."""
        published = self._published
        return RunState(
            counters=self.reporting.saved_counters(),
            agent=self._agent.state_dict(),
            run={
                **self.reporting.state_dict(),
                "evaluating": self.evaluations.state_dict(),
                "unfinished": self._unfinished,
                "weights": published and asdict(published),
                "intake": self._intake.state_dict(),
                "actors": self._actors.state_dict(),
                "replay_buffer": self._replay_buffer.state_dict(),
                "trainer": {
                    "refill": self.refill,
                    "seen_env_steps": self._intervals.seen_env_steps,
                },
                "callbacks": self._callbacks.state_dict(),
            },
            replay_buffer=self._replay_buffer,
        )

    def resume(self, saved: Resumption) -> None:
        """Brings everything to where the checkpoint was taken.

        Raises CheckpointError where it does not fit; then nothing that was recorded is touched.
        """
        run = saved.run
        try:
            self.refill = int(run["trainer"]["refill"])
            before = run["trainer"].get("seen_env_steps", saved.counters["env_steps"])
            self._intervals.seen_env_steps = int(before)
            self._agent.load_state_dict(saved.agent)
            self._replay_buffer.load_state_dict(run["replay_buffer"])
            if saved.load_rows is not None:
                saved.load_rows(self._replay_buffer)
            self._actors.load_state_dict(run["actors"])
            self._intake.load_state_dict(run["intake"])
            self._unfinished, self._resumed = bool(run["unfinished"]), True
            if run["weights"] is not None:
                self._published = Snapshot(**run["weights"])
            self.evaluations.load_state_dict(run["evaluating"])
            self._callbacks.load_state_dict(run.get("callbacks", {}))
            self.reporting.load_state_dict(run, saved.counters)  # last: cuts what was recorded
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise CheckpointError(
                f"the saved state of the run is incompatible with this version: {error!r}"
            ) from error


def _position(counters: Mapping[str, float]) -> dict[str, float]:
    """Where in a run these counters are; time passes even where nothing happens."""
    return {name: value for name, value in counters.items() if name != "time_s"}
