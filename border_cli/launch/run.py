"""The spine: a job becomes a run, which is prepared, built and trained, and ends.

`run_job` is called by `border-train`, by `border_cli.train` and by each job of a sweep, in whatever
process and on whatever machine that is.
"""

from __future__ import annotations

import logging
import math
import signal
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from border_cli.config.job import Job, modules_of
from border_cli.config.search_path import homes
from border_cli.core.callback import Callback
from border_cli.core.interfaces import ActorStats, Agent, Evaluator
from border_cli.core.output import FILE_ONLY, Recorders, RunEnd
from border_cli.core.seeding import derived_seeds
from border_cli.core.spaces import EnvSpec
from border_cli.core.stop import Heartbeat, SaveFlag, StopFlag
from border_cli.core.timing import MonotonicClock
from border_cli.errors import (
    ActorCrashed,
    ConfigError,
    Interrupted,
    RunDeleted,
    Stalled,
    reachable,
    reason_of,
)
from border_cli.launch.attempt import Attempt, attempt
from border_cli.launch.build import (
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
    matmul_of_agent,
    observe_stored,
    run_info,
)
from border_cli.launch.effective import EffectiveSettings, effective_settings
from border_cli.launch.summary import Result, run_summary
from border_cli.nn.saving import load_state
from border_cli.process.signals import interrupt
from border_cli.registry import flat_settings
from border_cli.run.checkpoint import CheckpointStore
from border_cli.run.checkpoint_files import Resumable, Saved
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
from border_cli.words import counted, masked

log = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True)
class RunOptions:
    """Parts of a run that its caller may bring along; each has a default."""

    recorders: Recorders | None = None  # None: those of the config
    callbacks: Mapping[str, Callback] | None = None  # None: those of the config
    evaluator: Evaluator | None = None  # None: that of the config
    console: Any = None  # a rich console for the panel
    stop: StopFlag = field(default_factory=StopFlag)
    save: SaveFlag = field(default_factory=SaveFlag)
    on_prepared: Callable[[Run], object] = lambda _: None  # before large memory is allocated
    on_hung_learner: Callable[[Stalled], None] | None = None  # called by the watchdog's thread
    sweep: Path | None = None  # whose stop a run in a worker must not miss
    finished_too: bool = False  # a finished run is restored, for its agent


def run_job(job: Job, options: RunOptions) -> Result | EarlierRun:
    """Runs a job in its run directory until it ends; every run begins here.

    If the run there is finished, returns that, unless `finished_too`. Raises RunInUse if another
    process runs there, ConfigError if its settings may not change so, and CheckpointError if no
    checkpoint is whole; the directory is as before then.
    """
    with attempt(job) as begun:
        if begun.earlier.finished and not options.finished_too:
            return begun.earlier
        run = Run(begun, options)
        if not begun.earlier.resumes:
            run.begin()
        with run.after_end:
            # Whatever fails, between two steps as well, closes everything; then `run.json` says so.
            try:
                with run.naming_lack_of_memory(), run.cleanup:
                    run.prepare()
                    options.on_prepared(run)
                    run.build()
                    if begun.earlier.resumes:
                        begun.save_settings()
                    return run.train()
            except BaseException as error:
                run.failed(error)
                raise


class Run:
    """A job that is being run: what is built for it, and its `run.json`; owned by the learner's
    thread. `prepare`, `build` and `train` come in this order."""

    spec: EnvSpec  # from here on: known once it is prepared
    agent: Agent
    evaluator: Evaluator

    def __init__(self, begun: Attempt, options: RunOptions) -> None:
        self.job = job = begun.job
        self.effective = effective_settings(job.config)
        self.changed = begun.earlier.changed  # settings of a run that is resumed
        self.newest: Saved | None = None  # the checkpoint that it is resumed from
        self._resumes = begun.earlier.resumes
        self._was_finished = begun.earlier.start is Start.CONTINUED and begun.folder.is_done
        self._options = options
        self._clock = MonotonicClock()
        self._lock, self._folder = begun.lock, begun.folder
        self._saved: Resumable | None = None  # with the weights that were read
        self._built: tuple[LearnerParts, Trainer] | None = None
        seeds = derived_seeds(job.config.seed, self.effective.num_actors)
        self._record = RunRecord(
            job.folder,
            check_lock=begun.lock.check,
            **({} if self._resumes else {"seeds": seeds}),
            command=list(job.command),
            import_paths=list(job.import_paths),
            settings=flat_settings(job.config),
        )
        self.cleanup = ExitStack()  # what is open, until `train` takes it over
        self.after_end = ExitStack()  # waits that follow once `run.json` has the end

    def begin(self, from_opt_steps: int | None = None) -> None:
        """Writes `run.json`. Of a resumed run the earlier one stays until it trains."""
        self._record.begin(from_opt_steps)
        if self._options.sweep is not None:
            # If the sweep was stopped before this run was marked as running, no signal was sent.
            from border_cli.run.sweep_folder import read_stop

            if read_stop(self._options.sweep) is not None:
                self._options.stop.request(Interrupted(signal.SIGTERM))

    def prepare(self) -> None:
        """Builds what takes little memory: recorders, evaluator, environment and agent."""
        effective, options, cleanup = self.effective, self._options, self.cleanup
        if self._resumes:
            rows = effective.config.checkpoint.replay_buffer
            self._saved = Resumable(self._folder, rows=rows, load_state=load_state)
            self.newest = self._saved.newest
        self._recording = RecorderSet(self._recorders())
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
        with reachable(ConfigError):
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
        # Modules of environments are imported as these are made.
        found = dict.fromkeys([*self.job.import_paths, *homes(modules_of(effective.config))])
        self._record.add(import_paths=list(found), **dict(matmul_of_agent(effective, self.agent)))

    def _recorders(self) -> Recorders:
        """Recorders of the caller, else of the settings; a job of a sweep records its progress."""
        effective, options, folder = self.effective, self._options, self.job.folder
        recorders = options.recorders
        if recorders is None:
            best = best_score(folder) if self._resumes else None
            with reachable(ConfigError):
                recorders = build_recorders(
                    effective, folder, options.console, best, self.job.command
                )
        if not self.job.in_sweep:
            return recorders
        from border_cli.launch.progress import ProgressRecorder

        info = run_info(effective, folder)
        return [*recorders, ProgressRecorder(info, self._record.progress)]

    def _close_recorders(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Tells them, and callbacks, how the run ended, if training began; an exit callback."""
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
        """Builds the rest, which takes large memory; a resumed run is as at its checkpoint then."""
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
            on_saved=self._record.saved,
            callbacks=self._callbacks,
            episode_limit=self._episode_limit(),
        )
        trainer = build_trainer(effective, parts, self.spec)
        if self._saved is not None:
            self.newest = _restore(self._saved, trainer, store)
            self._saved = None  # with the weights that were read from the checkpoint
            if self._was_finished:
                self._callbacks.go_on()
        self._built = parts, trainer

    def _episode_limit(self) -> EpisodeLimit:
        """That of the attempts before, for a run that is resumed: scores stay comparable."""
        limit = build_episode_limit(
            self.effective,
            self.evaluator,
            on_decided=lambda steps: self._record.add(**{EPISODE_LIMIT: steps}),
        )
        if self._resumes:
            limit.steps = self._folder.episode_limit
        return limit

    def train(self) -> Result:
        """Trains until a limit is reached; everything is closed then, and `run.json` says done."""
        assert self._built is not None, "build() comes first"
        parts, trainer = self._built
        if self.newest is not None:
            self.begin(self.newest.opt_steps)
        self._callbacks.begin(run_info(self.effective, self.job.folder))
        actor_stats = self._train(parts, trainer)
        stats, exit_reason = trainer.stats(), self._exit_reason()
        self._end("done", exit_reason)
        return Result(
            agent=parts.agent,
            best_score=stats.best_score,
            actor_stats=actor_stats,
            trainer_stats=stats,
            run_dir=self.job.folder,
            exit_reason=exit_reason,
        )

    def _exit_reason(self) -> str:
        """Why a run that is done has ended."""
        assert self._built is not None
        ended_by = self._built[1].ended_by
        return str(ended_by) if ended_by == self._callbacks.stopped_by else f"{ended_by} reached"

    def _train(self, parts: LearnerParts, trainer: Trainer) -> list[ActorStats]:
        learner, options = trainer.heartbeat, self._options

        def on_hung_learner(stalled: Stalled) -> None:
            self._end(*status_of(stalled))
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
            # The learner's thread is prepared first, which takes a minute if that compiles. All is
            # closed under the watchdog, because closing can hang as well.
            with (
                parts.agent.learner_thread(),
                watchdog,
                self.cleanup.pop_all(),
                ExitStack() as actors,
            ):
                with learner.waiting("the actors to start"):  # a cluster may take its time
                    actors.enter_context(parts.actors)
                parts.evaluation_runner.open(parts.actors)
                return trainer.train()
        except KeyboardInterrupt:
            options.stop.check()  # what the watchdog found, where it interrupted a hung learner
            raise

    @contextmanager
    def naming_lack_of_memory(self) -> Iterator[None]:
        """Says what was being done, and what takes memory, where an allocation fails."""
        try:
            yield
        except Exception as error:
            doing = "while the run was built" if self._built is None else "during training"
            if isinstance(error, ActorCrashed):
                doing = f"in actor {error.actor_id}"
            settings = self.effective.memory_settings()
            failed = out_of_memory(error, f"out of memory {doing}", settings)
            if failed is None:
                raise
            raise failed from error

    def failed(self, error: BaseException) -> None:
        """Notes in `run.json` what ended the run."""
        with suppress(RunDeleted):  # there may be no place for it
            self._end(
                *status_of(error), traceback=masked("".join(traceback.format_exception(error)))
            )

    def _end(self, status: str, reason: str, **more: Any) -> None:
        if not self._record.begun:
            return
        summary = dict(more)
        if self._built is not None:
            parts, trainer = self._built
            summary |= run_summary(self.effective, trainer, parts, failed=status == "failed")
        log.info("run %s: %s", status, reason, extra=FILE_ONLY)
        self._record.end(status, reason, **summary)


def _restore(found: Resumable, trainer: Trainer, store: CheckpointStore) -> Saved:
    """Brings everything to where the newest whole checkpoint was taken, and returns that."""
    saved = found.into(trainer.resume)
    store.resumed(saved)
    best = best_score(found.run_dir)
    if best is not None:  # it may be newer than the checkpoint
        trainer.scores.know_best(*best)
    log.info("resumed from %s", saved.folder)
    return saved


def restored_line(effective: EffectiveSettings, saved: Saved) -> str:
    """The parts that come back with a checkpoint, in a few words."""
    config, trainer = effective.config, effective.config.trainer
    if not isinstance(trainer, ReplayRatioConfig):
        return "weights, optimiser, random generators; the data set is read again"
    if config.agent.on_policy:
        whole = config.checkpoint.replay_buffer and saved.has_rows
        rollout = "rollout" if whole else "no rollout, so one is collected from its beginning"
        return f"weights, optimiser, {rollout}"
    if not config.checkpoint.replay_buffer or not saved.has_rows:
        samples = trainer.warmup_period
        return f"no replay buffer, so {counted(samples, 'sample')} are collected first"
    rows = sum(each.end - each.first for each in saved.chunks)
    stored = counted(min(rows, config.replay_buffer.capacity), "transition")
    return f"weights, optimiser, replay buffer ({stored})"


def status_of(error: BaseException) -> tuple[str, str]:
    """Status and reason of a run that this ended."""
    if isinstance(error, Interrupted | KeyboardInterrupt):
        return "interrupted", str(error) or "KeyboardInterrupt"
    return "failed", reason_of(error)
