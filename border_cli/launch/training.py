"""One attempt of a run, from its settings in effect to its result.

    with training_run(effective, run_dir, options, lock) as run:
        started = run.prepare()  # nothing large is allocated, nothing runs
        run.build()
        result = run.train()

Whatever fails within the block, between two steps as well, ends the run: everything is closed, and
`run.json` says how it ended.
"""

from __future__ import annotations

import logging
import math
import signal
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from border_cli.core.errors import (
    ActorCrashed,
    ConfigError,
    Interrupted,
    NotFinite,
    RunDeleted,
    Stalled,
    reachable,
    reason_of,
)
from border_cli.core.interfaces import (
    ActorStats,
    Agent,
    EnvFactory,
    EvaluationRunner,
    Evaluator,
)
from border_cli.core.machine import out_of_memory
from border_cli.core.output import FILE_ONLY, Recorders, RunEnd
from border_cli.core.seeding import derived_seeds
from border_cli.core.spaces import EnvSpec
from border_cli.core.stop import Heartbeat, SaveFlag, StopFlag
from border_cli.core.timing import Clock, MonotonicClock
from border_cli.core.words import counted
from border_cli.launch.build import (
    build_actors,
    build_agent,
    build_checkpoints,
    build_evaluation_runner,
    build_evaluator,
    build_first_agent,
    build_goal_rewards,
    build_recorders,
    build_replay_buffer,
    build_trainer,
    encoders_of,
    env_factory,
    matmul_of_agent,
    observe_stored,
)
from border_cli.launch.effective import EffectiveSettings
from border_cli.launch.summary import Result, run_summary, summary_lines
from border_cli.nn.saving import load_state
from border_cli.registry import flat_settings
from border_cli.run.checkpoint import CheckpointStore
from border_cli.run.checkpoint_files import Resumable, Saved
from border_cli.run.finding import best_score
from border_cli.run.status import RunLock, RunRecord
from border_cli.run.sweep_folder import read_stop
from border_cli.trainer.post_step import LearnerParts
from border_cli.trainer.recording import Recording
from border_cli.trainer.trainer import Trainer
from border_cli.trainer.update_log import BATCH_FILE
from border_cli.trainer.watchdog import Watchdog

log = logging.getLogger(__name__)

# What the learner does in each section of its time, in words.
DOING = {
    "wait": "while the learner waited for samples",
    "push": "while samples were stored",
    "sample": "while a batch was sampled",
    "update": "during an update",
    "priorities": "while priorities were updated",
    "evaluate": "during an evaluation",
    "save": "while a checkpoint was saved",
    "record": "while metrics were recorded",
    "sync": "while weights were copied to the actors",
    "other": "during startup or shutdown",
}


@dataclass(slots=True, kw_only=True)
class RunOptions:
    """What a caller may bring along; every part has a default."""

    recorders: Recorders | None = None  # None: those of the config
    recorders_besides: Recorders = ()  # that only watch
    evaluator: Evaluator | None = None  # None: that of the config
    console: Any = None  # a rich console for the panel
    resume: bool = False  # from the newest whole checkpoint in the run directory
    stop: StopFlag = field(default_factory=StopFlag)
    save: SaveFlag = field(default_factory=SaveFlag)
    clock: Clock = field(default_factory=MonotonicClock)
    run_json: Mapping[str, Any] = field(default_factory=dict)  # what `run.json` says in addition
    on_hung_learner: Callable[[Stalled], None] | None = None  # called by the watchdog's thread
    sweep: Path | None = None  # whose stop a run in a worker must not miss


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """What is known of a run before large memory is allocated."""

    spec: EnvSpec
    device_name: str
    evaluation: str  # how the evaluator describes itself
    encoders: list[tuple[str, str]]  # of the agent, see `encoders_of`
    matmul: list[tuple[str, str]]  # whose products of matrices, see `matmul_of_agent`
    resumed_opt_steps: int | None = None  # of the checkpoint that the run is resumed from
    restored: str = ""  # what comes back with it


@dataclass(frozen=True, slots=True, kw_only=True)
class _Prepared:
    """The parts that take little memory."""

    found: Resumable | None  # None: a new run
    recording: Recording
    factory: EnvFactory
    agent: Agent
    runner: EvaluationRunner


@contextmanager
def training_run(
    effective: EffectiveSettings, run_dir: Path, options: RunOptions, lock: RunLock
) -> Iterator[TrainingRun]:
    """The block in which a run lives, within the lock of its directory.

    Raises CheckpointError within the block where there is nothing whole to resume from; that
    changes nothing.
    """
    run = TrainingRun(effective, run_dir, options, lock)
    run.begin()
    try:
        with run.naming_lack_of_memory(), run.cleanup:
            yield run
    except BaseException as error:
        run.failed(error)
        raise


def train_through(effective: EffectiveSettings, run_dir: Path, options: RunOptions) -> Result:
    """All steps of a run in a row."""
    with RunLock(run_dir) as lock, training_run(effective, run_dir, options, lock) as run:
        run.prepare()
        run.build()
        return run.train()


class TrainingRun:
    """One attempt: what is built for it, and its `run.json`; owned by the learner's thread."""

    def __init__(
        self, effective: EffectiveSettings, run_dir: Path, options: RunOptions, lock: RunLock
    ) -> None:
        self._effective = effective
        self._run_dir = run_dir
        self._options = options
        self._lock = lock
        self._prepared: _Prepared | None = None
        self._built: tuple[LearnerParts, Trainer] | None = None
        self._resumed_from: int | None = None  # updates of the checkpoint
        run_json = {**options.run_json, "settings": flat_settings(effective.config)}
        if not options.resume:
            seeds = derived_seeds(effective.config.seed, effective.num_actors)
            run_json = {"seeds": seeds, **run_json}
        self._record = RunRecord(run_dir, lock=lock, **run_json)
        self.cleanup = ExitStack()  # what is open, until `train` takes it over

    def begin(self) -> None:
        """Writes the `run.json` of a new run; that of a resumed one stays until `train`."""
        if not self._options.resume:
            self._begin()

    def _begin(self, resumed_from: int | None = None) -> None:
        """Who stopped the sweep before `run.json` says that this run is running sent no signal."""
        self._record.begin(resumed_from)
        if self._options.sweep is not None and read_stop(self._options.sweep) is not None:
            self._options.stop.request(Interrupted(signal.SIGTERM))

    def prepare(self) -> Started:
        """Builds recorders, evaluator, environment and agent."""
        effective, options, cleanup = self._effective, self._options, self.cleanup
        found = None
        if options.resume:
            rows = effective.config.checkpoint.replay_buffer
            found = Resumable(self._run_dir, rows=rows, load_state=load_state)
        recorders = options.recorders
        if recorders is None:
            best = best_score(self._run_dir) if found else None
            with reachable(ConfigError):
                recorders = build_recorders(effective, self._run_dir, options.console, best)
        recorders = [*recorders, *options.recorders_besides]
        recording = Recording(recorders, options.clock)
        cleanup.callback(recording.close)
        heartbeat = Heartbeat("evaluation", waiting_for="its turn")
        evaluator = options.evaluator
        if evaluator is None:
            evaluator = build_evaluator(effective, stop=options.stop, heartbeat=heartbeat)
        cleanup.callback(evaluator.close)
        factory = env_factory(effective)
        if found is None:
            agent = build_first_agent(effective, factory.spec)
        else:
            agent = build_agent(effective, factory.spec, resumed=found.agent)
        runner = build_evaluation_runner(
            effective,
            agent,
            factory.spec,
            evaluator=evaluator,
            stop=options.stop,
            heartbeat=heartbeat,
        )
        cleanup.callback(runner.close)
        self._prepared = _Prepared(
            found=found, recording=recording, factory=factory, agent=agent, runner=runner
        )
        matmul = matmul_of_agent(effective, agent)
        self._record.add(**dict(matmul))
        return Started(
            spec=factory.spec,
            device_name=agent.device_name,
            evaluation=_evaluation_line(effective, factory.spec, evaluator),
            encoders=encoders_of(agent),
            matmul=matmul,
            resumed_opt_steps=found.newest.opt_steps if found else None,
            restored=restored_line(effective, found.newest) if found else "",
        )

    def build(self) -> None:
        """Builds the rest, which takes large memory; a resumed run is as at its checkpoint then."""
        assert self._prepared is not None, "prepare() comes first"
        effective, options, prepared = self._effective, self._options, self._prepared
        agent, spec = prepared.agent, prepared.factory.spec
        store = build_checkpoints(effective, self._run_dir, self._lock.check)
        self.cleanup.callback(store.close)
        goal_rewards = build_goal_rewards(effective)
        if goal_rewards is not None:
            self.cleanup.callback(goal_rewards.close)
        replay_buffer = build_replay_buffer(effective, spec, agent.observe_returns, goal_rewards)
        observe_stored(agent, replay_buffer)
        parts = LearnerParts(
            agent=agent,
            replay_buffer=replay_buffer,
            actors=build_actors(effective, agent, prepared.factory, options.clock),
            evaluation_runner=prepared.runner,
            checkpoints=store,
            recording=prepared.recording,
            clock=options.clock,
            stop=options.stop,
            save=options.save,
        )
        trainer = build_trainer(effective, parts, spec, on_saved=self._record.saved)
        if prepared.found is not None:
            self._resumed_from = _restore(prepared.found, trainer, store)
        self._built = parts, trainer
        self._prepared = None  # with the weights that were read from the checkpoint
        self.cleanup.push(partial(_report_end, trainer, prepared.recording))

    def train(self) -> Result:
        """Trains until a limit is reached; everything is closed then, and `run.json` says done."""
        assert self._built is not None, "build() comes first"
        parts, trainer = self._built
        if self._resumed_from is not None:
            self._begin(self._resumed_from)
        actor_stats = self._train(parts, trainer)
        stats, exit_reason = trainer.stats(), f"{trainer.ended_by} reached"
        self._end("done", exit_reason)
        return Result(
            agent=parts.agent,
            best_score=stats.best_score,
            actor_stats=actor_stats,
            trainer_stats=stats,
            run_dir=self._run_dir,
            exit_reason=exit_reason,
        )

    def _train(self, parts: LearnerParts, trainer: Trainer) -> list[ActorStats]:
        learner, options = trainer.post_step.heartbeat, self._options

        def on_hung_learner(stalled: Stalled) -> None:
            self._end(*_status_of(stalled))
            if options.on_hung_learner is not None:
                options.on_hung_learner(stalled)
            else:
                interrupt(learner.thread_id)

        watchdog = Watchdog(
            [learner, parts.evaluation_runner.pulse, *parts.actors.heartbeats()],
            timeout_s=self._effective.config.trainer.stall_timeout_s,
            stop=options.stop,
            clock=options.clock,
            describe=lambda: _progress(parts, trainer),
            on_hung_learner=on_hung_learner,
        )
        try:
            # The learner's thread is made ready first, which takes a minute where that compiles.
            # Whatever is closed is closed under the watchdog's eyes: that may hang, too.
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
            doing = "while the run was built"
            if self._built is not None:
                doing = DOING[self._built[1].post_step.timing.failing]
            if isinstance(error, ActorCrashed):
                doing = f"in actor {error.actor_id}"
            what = f"out of memory {doing}"
            failed = out_of_memory(error, what, self._effective.memory_settings())
            if failed is None:
                raise
            raise failed from error

    def failed(self, error: BaseException) -> None:
        """Notes in `run.json` what ended the run, and keeps the batch of a NaN."""
        if isinstance(error, NotFinite) and error.rows is not None:
            self._keep_batch(error.rows)
        with suppress(RunDeleted):  # there may be no place for it
            self._end(*_status_of(error), traceback="".join(traceback.format_exception(error)))

    def _keep_batch(self, rows: Mapping[str, NDArray[Any]]) -> None:
        path, content = self._run_dir / BATCH_FILE, dict[str, Any](rows)
        try:
            np.savez(path, **content)
        except OSError as error:
            log.error("could not write %s: %s", BATCH_FILE, error)

    def _end(self, status: str, reason: str, **more: Any) -> None:
        if not self._record.begun:
            return
        summary = dict(more)
        if self._built is not None:
            parts, trainer = self._built
            summary |= run_summary(self._effective, trainer, parts, failed=status == "failed")
            for line in summary_lines(summary):
                log.info("%s", line, extra=FILE_ONLY)
        score = summary.get("best_score", -math.inf)
        with_score = f"; best score {score:.10g}" if math.isfinite(score) else ""
        log.info("run %s: %s%s", status, reason, with_score, extra=FILE_ONLY)
        self._record.end(status, reason, **summary)


def _restore(found: Resumable, trainer: Trainer, store: CheckpointStore) -> int:
    """Brings everything to where the newest whole checkpoint was taken; returns its updates."""
    saved = found.into(trainer.resume)
    store.resumed(saved)
    best = best_score(found.run_dir)
    if best is not None:  # it may be newer than the checkpoint
        trainer.scores.know_best(*best)
    elif trainer.scores.best_opt_steps is not None:
        log.warning(
            "the best model (score %g at update %d) is missing from %s or damaged; only a better "
            "one will replace it",
            trainer.scores.best, trainer.scores.best_opt_steps, found.run_dir,
        )  # fmt: skip
    log.info("resumed from %s", saved.folder)
    return saved.opt_steps


def restored_line(effective: EffectiveSettings, saved: Saved) -> str:
    """What comes back with a checkpoint, in a few words."""
    config = effective.config
    if not effective.has_actors:
        return "weights, optimiser, random generators; the data set is read again"
    rows = sum(each.end - each.first for each in saved.chunks)
    if not config.checkpoint.replay_buffer or not saved.has_rows:
        samples = config.trainer.warmup_period
        return f"no replay buffer, so {counted(samples, 'sample')} are collected first"
    rows = min(rows, config.replay_buffer.capacity)
    continued = effective.in_learner_thread
    episodes = "unfinished episodes" if continued else "counters; actors begin new episodes"
    return f"weights, optimiser, replay buffer ({counted(rows, 'transition')}), {episodes}"


def _status_of(error: BaseException) -> tuple[str, str]:
    """Status and reason of a run that this ended."""
    if isinstance(error, Interrupted | KeyboardInterrupt):
        return "interrupted", str(error) or "KeyboardInterrupt"
    return "failed", reason_of(error)


def _report_end(
    trainer: Trainer,
    recording: Recording,
    kind: object,
    error: BaseException | None,
    trace: object,
) -> None:
    """Reports to the recorders how the run ended; an exit callback."""
    del kind, trace
    if isinstance(error, RunDeleted):
        return
    status = "done" if error is None else _status_of(error)[0]
    best = trainer.stats().best_score
    recording.end(RunEnd(status=status, best_score=best if math.isfinite(best) else None))


def _evaluation_line(effective: EffectiveSettings, spec: EnvSpec, evaluator: Evaluator) -> str:
    line = evaluator.describe()
    if effective.evaluates_in_background(spec):
        where = " on a Ray cluster" if effective.evaluates_on_ray else ""
        return f"{line}, in the background{where}"
    if effective.config.evaluator.background:
        return f"{line}, inline, as in every bit-reproducible run"
    return line


def _progress(parts: LearnerParts, trainer: Trainer) -> str:
    """How far the run is, for the report of the watchdog."""
    gauges = ", ".join(f"{key} {value:g}" for key, value in parts.actors.gauges().items())
    counters = trainer.post_step.counters
    return f"{gauges}; {counters.samples_total:,} samples, {counters.opt_steps:,} updates"


def interrupt(thread_id: int | None) -> None:
    """The last resort of a Python caller: a KeyboardInterrupt for the main thread.

    A real signal, because nothing less ends a wait. Other threads cannot be interrupted.
    """
    if thread_id is not None and thread_id == threading.main_thread().ident:
        log.critical("the learner's thread hangs; interrupting it")
        signal.pthread_kill(thread_id, signal.SIGINT)
    else:
        log.critical("the learner's thread hangs and cannot be interrupted")
