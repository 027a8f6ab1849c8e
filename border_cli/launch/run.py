"""The life cycle of a run: a job is prepared, built and trained, and its end is recorded.

`run_job` is called by `border-train`, by `border_cli.train` and by each job of a sweep, in any
process and on any machine.
"""

from __future__ import annotations

import logging
import math
import signal
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from border_cli.config.job import Job, modules_of
from border_cli.config.search_path import homes
from border_cli.core.callback import Callback
from border_cli.core.interfaces import ActorStats, Agent, Evaluator
from border_cli.core.output import FILE_ONLY, Recorders, RunEnd
from border_cli.core.seeding import derived_seeds
from border_cli.core.spaces import EnvSpec
from border_cli.core.state import load_state
from border_cli.core.stop import Heartbeat, SaveFlag, StopFlag
from border_cli.core.timing import MonotonicClock
from border_cli.errors import (
    ActorCrashed,
    ConfigError,
    Interrupted,
    RunDeleted,
    Stalled,
    os_errors_as,
    reason_of,
)
from border_cli.launch.attempt import Attempt, start_attempt
from border_cli.launch.build import (
    backend_lines,
    build_actors,
    build_agent,
    build_callbacks,
    build_checkpoints,
    build_episode_limit,
    build_evaluation_runner,
    build_evaluator,
    build_first_agent,
    build_goal_rewards,
    build_recorders,
    build_replay_buffer,
    build_trainer,
    env_factory,
    observe_stored,
    run_info,
)
from border_cli.launch.effective import EffectiveSettings, effective_settings
from border_cli.launch.summary import Result, run_summary
from border_cli.process.signals import interrupt
from border_cli.registry import flat_settings
from border_cli.run.checkpoint import CheckpointStore
from border_cli.run.checkpoint_files import ResumableCheckpoints, VerifiedCheckpoint
from border_cli.run.finding import best_score
from border_cli.run.run_folder import EarlierRun, Start
from border_cli.run.spec import write_spec
from border_cli.run.status import EPISODE_LIMIT, RunRecord
from border_cli.settings.run import ReplayRatioConfig
from border_cli.system.machine import out_of_memory
from border_cli.trainer.callbacks import Callbacks
from border_cli.trainer.evaluating import EpisodeLimit
from border_cli.trainer.recorder_set import RecorderSet
from border_cli.trainer.trainer import LearnerParts, Trainer
from border_cli.trainer.watchdog import Watchdog
from border_cli.words import mask_secrets, pluralize

log = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True)
class RunOptions:
    """Optional parts of a run that its caller may provide."""

    recorders: Recorders | None = None  # None means those of the config
    callbacks: Mapping[str, Callback] | None = None  # None means those of the config
    evaluator: Evaluator | None = None  # None means that of the config
    console: Any = None  # a rich console for the panel
    stop: StopFlag = field(default_factory=StopFlag)
    save: SaveFlag = field(default_factory=SaveFlag)
    on_prepared: Callable[[Run], object] = lambda _: None  # called before large allocations
    on_hung_learner: Callable[[Stalled], None] | None = None  # called by the watchdog's thread
    sweep: Path | None = None  # directory of the sweep, whose stop file is checked
    finished_too: bool = False  # whether to restore a finished run, for its agent


def run_job(job: Job, options: RunOptions) -> Result | EarlierRun:
    """Runs a job in its run directory until it ends; every run starts here.

    If the run there is finished, returns that run, unless `finished_too`. Raises RunInUse if
    another process is running there, ConfigError if settings were changed that a resumed run must
    keep, and CheckpointError if no checkpoint is valid. After these errors, settings, metrics and
    checkpoints are unchanged. An unfinished run without any checkpoint starts over.
    """
    with start_attempt(job) as attempt:
        if attempt.earlier.finished and not options.finished_too:
            return attempt.earlier
        run = Run(attempt, options)
        if not attempt.earlier.resumes:
            run.begin()
        with run.after_end:
            # After any failure, even between two steps, close everything and update `run.json`.
            try:
                with run.naming_lack_of_memory(), run.cleanup:
                    run.prepare()
                    options.on_prepared(run)
                    run.build()
                    if attempt.earlier.resumes:
                        attempt.save_settings()
                    return run.train()
            except BaseException as error:
                run.record_failure(error)
                raise


class Run:
    """A running job: the parts built for it, and its `run.json`. Owned by the learner's thread.
    `prepare`, `build` and `train` are called in this order."""

    spec: EnvSpec  # this and the following attributes are set by `prepare`
    agent: Agent
    evaluator: Evaluator

    def __init__(self, attempt: Attempt, options: RunOptions) -> None:
        self.job = job = attempt.job
        self.effective = effective_settings(job.config)
        self.changed = attempt.earlier.changed  # changed settings of a resumed run
        self.newest: VerifiedCheckpoint | None = None  # the checkpoint that the run resumes from
        self._resumes = attempt.earlier.resumes
        # Callbacks passed in Python are not settings, so a caller may have changed them.
        self._clears_stops = attempt.folder.is_done and (
            attempt.earlier.start is Start.CONTINUED or options.callbacks is not None
        )
        self._options = options
        self._clock = MonotonicClock()
        self._lock, self._folder = attempt.lock, attempt.folder
        self._saved: ResumableCheckpoints | None = None  # holds the loaded weights
        self._built: tuple[LearnerParts, Trainer] | None = None
        seeds = derived_seeds(job.config.seed, self.effective.num_actors)
        self._record = RunRecord(
            job.folder,
            check_lock=attempt.lock.check,
            **({} if self._resumes else {"seeds": seeds}),
            command=list(job.command),
            import_paths=list(job.import_paths),
            settings=flat_settings(job.config),
        )
        self.cleanup = ExitStack()  # closes all open parts; taken over by `train`
        self.after_end = ExitStack()  # callbacks that wait, after `run.json` is final

    def begin(self, from_opt_steps: int | None = None) -> None:
        """Writes `run.json`. A resumed run keeps the previous document until it trains."""
        self._record.begin(from_opt_steps)
        if self._options.sweep is not None:
            # If the sweep was stopped before this run was marked as running, no signal was sent.
            from border_cli.run.sweep_folder import read_stop

            if read_stop(self._options.sweep) is not None:
                self._options.stop.request(Interrupted(signal.SIGTERM))

    def prepare(self) -> None:
        """Builds the parts that need little memory: recorders, evaluator, environment and agent."""
        effective, options, cleanup = self.effective, self._options, self.cleanup
        if self._resumes:
            rows = effective.config.checkpoint.replay_buffer
            self._saved = ResumableCheckpoints(self._folder, rows=rows, load_state=load_state)
            self.newest = self._saved.newest
        self._recording = RecorderSet(self._choose_recorders())
        cleanup.push(self._close_recorders)
        self.after_end.callback(self._recording.wait)
        chosen = options.callbacks
        self._callbacks = Callbacks(build_callbacks(effective.config) if chosen is None else chosen)
        heartbeat = Heartbeat("evaluation", waiting_for="its turn")
        self.evaluator = options.evaluator or build_evaluator(
            effective, stop=options.stop, heartbeat=heartbeat
        )
        cleanup.callback(self.evaluator.close)
        self._factory = env_factory(effective)
        self.spec = self._factory.spec
        with os_errors_as(ConfigError):
            write_spec(self.job.folder, self.spec)
        if self._saved is None:
            self.agent = build_first_agent(effective, self.spec)
        else:
            self.agent = build_agent(effective, self.spec)
        self._runner = build_evaluation_runner(
            effective,
            self.agent,
            self.spec,
            evaluator=self.evaluator,
            stop=options.stop,
            heartbeat=heartbeat,
        )
        cleanup.callback(self._runner.close)
        # Creating environments has imported their modules.
        paths = dict.fromkeys([*self.job.import_paths, *homes(modules_of(effective.config))])
        self._record.add(import_paths=list(paths), **dict(backend_lines(self.agent)))

    def _choose_recorders(self) -> Recorders:
        """Returns the caller's recorders, or those from the settings; a job of a sweep also records
        its progress."""
        effective, options, folder = self.effective, self._options, self.job.folder
        recorders = options.recorders
        best = best_score(folder) if self._resumes else None
        if recorders is None:
            with os_errors_as(ConfigError):
                recorders = build_recorders(
                    effective, folder, options.console, best, self.job.command
                )
        if not self.job.in_sweep:
            return recorders
        from border_cli.launch.progress import ProgressRecorder

        info = replace(run_info(effective, folder), best=best)
        return [*recorders, ProgressRecorder(info, self._record.progress)]

    def _close_recorders(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Closes the recorders. If the run was built and not deleted, first reports its end to
        recorders and callbacks. Used as an exit callback."""
        del kind, trace
        try:
            if self._built is not None and not isinstance(error, RunDeleted):
                parts, trainer = self._built
                status, reason = (
                    ("done", self._exit_reason()) if error is None else status_of(error)
                )
                best = trainer.stats().best_score
                ended = RunEnd(
                    status=status,
                    best_score=best if math.isfinite(best) else None,
                    exit_reason=reason,
                    summary=run_summary(self.effective, trainer, parts, failed=status == "failed"),
                )
                self._recording.end(ended)
                self._callbacks.end(ended)
        finally:
            self._recording.close()

    def build(self) -> None:
        """Builds the remaining parts, which need much memory, and restores the checkpoint if there
        is one."""
        effective, options, agent = self.effective, self._options, self.agent
        store = build_checkpoints(effective, self.job.folder, self._lock.check, self._clock)
        self.cleanup.callback(store.close)
        goal_rewards = build_goal_rewards(effective)
        if goal_rewards is not None:
            self.cleanup.callback(goal_rewards.close)
        replay_buffer = build_replay_buffer(
            effective, self.spec, agent.observe_returns, goal_rewards
        )
        observe_stored(agent, replay_buffer)
        parts = LearnerParts(
            agent=agent,
            replay_buffer=replay_buffer,
            actors=build_actors(effective, agent, self._factory, self._clock),
            evaluation_runner=self._runner,
            checkpoints=store,
            recording=self._recording,
            clock=self._clock,
            stop=options.stop,
            save=options.save,
            starts_trained=effective.config.init_from is not None,
            on_saved=self._record.record_counters,
            callbacks=self._callbacks,
            episode_limit=self._episode_limit(),
        )
        trainer = build_trainer(effective, parts, self.spec)
        if self._saved is not None:
            self.newest = _restore(self._saved, trainer, store)
            self._saved = None  # frees the weights from the checkpoint
            if self._clears_stops:
                self._callbacks.clear_stops()
        self._built = parts, trainer

    def _episode_limit(self) -> EpisodeLimit:
        """Returns the limit of evaluation episodes. A resumed run reuses its earlier limit, so that
        scores stay comparable."""
        limit = build_episode_limit(
            self.effective,
            self.evaluator,
            on_decided=lambda steps: self._record.add(**{EPISODE_LIMIT: steps}),
        )
        if self._resumes:
            limit.steps = self._folder.episode_limit
        return limit

    def train(self) -> Result:
        """Trains until a limit is reached, closes everything, and marks the run as done."""
        assert self._built is not None, "build() comes first"
        parts, trainer = self._built
        if self.newest is not None:
            self.begin(self.newest.opt_steps)
        self._callbacks.begin(run_info(self.effective, self.job.folder))
        actor_stats = self._train(parts, trainer)
        stats, exit_reason = trainer.stats(), self._exit_reason()
        self._record_end("done", exit_reason)
        return Result(
            agent=parts.agent,
            best_score=stats.best_score,
            actor_stats=actor_stats,
            trainer_stats=stats,
            run_dir=self.job.folder,
            exit_reason=exit_reason,
        )

    def _exit_reason(self) -> str:
        """Returns why a finished run has ended."""
        assert self._built is not None
        ended_by = self._built[1].ended_by
        return str(ended_by) if ended_by == self._callbacks.stopped_by else f"{ended_by} reached"

    def _train(self, parts: LearnerParts, trainer: Trainer) -> list[ActorStats]:
        learner, options = trainer.heartbeat, self._options

        def on_hung_learner(stalled: Stalled) -> None:
            with suppress(RunDeleted):  # then there is no place for `run.json`
                self._record_end(*status_of(stalled))
            if options.on_hung_learner is not None:
                options.on_hung_learner(stalled)
            else:
                interrupt(learner.thread_id)

        watchdog = Watchdog(
            [learner, parts.evaluation_runner.pulse, *parts.actors.heartbeats()],
            timeout_s=self.effective.config.trainer.stall_timeout_s,
            stop=options.stop,
            on_hung_learner=on_hung_learner,
        )
        try:
            # The learner's thread comes first, because compiling can take a minute. Everything is
            # closed under the watchdog, because closing can hang as well.
            with (
                parts.agent.learner_thread(),
                watchdog,
                self.cleanup.pop_all(),
                ExitStack() as actors,
            ):
                with learner.waiting("the actors to start"):  # a cluster may take minutes
                    actors.enter_context(parts.actors)
                parts.evaluation_runner.open(parts.actors)
                return trainer.train()
        except KeyboardInterrupt:
            options.stop.check()  # raises the watchdog's error if it interrupted the learner
            raise

    @contextmanager
    def naming_lack_of_memory(self) -> Iterator[None]:
        """If an allocation fails within the block, raises an error that names the phase and the
        settings that need memory."""
        try:
            yield
        except Exception as error:
            activity = "while the run was built" if self._built is None else "during training"
            if isinstance(error, ActorCrashed):
                activity = f"in actor {error.actor_id}"
            settings = self.effective.memory_settings()
            memory_error = out_of_memory(error, f"out of memory {activity}", settings)
            if memory_error is None:
                raise
            raise memory_error from error

    def record_failure(self, error: BaseException) -> None:
        """Records in `run.json` which error ended the run."""
        with suppress(RunDeleted):  # then there is no place for `run.json`
            self._record_end(
                *status_of(error),
                traceback=mask_secrets("".join(traceback.format_exception(error))),
            )

    def _record_end(self, status: str, reason: str, **more: Any) -> None:
        if not self._record.begun:
            return
        if self._built is not None:
            parts, trainer = self._built
            more |= run_summary(self.effective, trainer, parts, failed=status == "failed")
        log.info("run %s: %s", status, reason, extra=FILE_ONLY)
        self._record.end(status, reason, **more)


def _restore(
    resumable: ResumableCheckpoints, trainer: Trainer, store: CheckpointStore
) -> VerifiedCheckpoint:
    """Restores everything from the newest valid checkpoint, and returns this checkpoint."""
    saved = resumable.restore_newest(trainer.resume)
    store.continue_from(saved)
    best = best_score(resumable.run_dir)
    if best is not None:  # the best model may be newer than the checkpoint
        trainer.scores.update_best(*best)
    log.info("resumed from %s", saved.folder)
    return saved


def restored_line(effective: EffectiveSettings, saved: VerifiedCheckpoint) -> str:
    """Returns a short text that lists the parts restored from a checkpoint."""
    config, trainer = effective.config, effective.config.trainer
    if not isinstance(trainer, ReplayRatioConfig):
        return "weights, optimiser, random generators; the data set is read again"
    if config.agent.on_policy:
        whole = config.checkpoint.replay_buffer and saved.has_rows
        rollout = "rollout" if whole else "no rollout, so one is collected from its beginning"
        return f"weights, optimiser, {rollout}"
    if not config.checkpoint.replay_buffer or not saved.has_rows:
        samples = trainer.warmup_period
        return f"no replay buffer, so {pluralize(samples, 'sample')} are collected first"
    rows = sum(chunk.end - chunk.first for chunk in saved.chunks)
    stored = pluralize(min(rows, config.replay_buffer.capacity), "transition")
    return f"weights, optimiser, replay buffer ({stored})"


def status_of(error: BaseException) -> tuple[str, str]:
    """Returns the status and the reason of a run that this error ended."""
    if isinstance(error, Interrupted | KeyboardInterrupt):
        return "interrupted", str(error) or "KeyboardInterrupt"
    return "failed", reason_of(error)
