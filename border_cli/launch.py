"""One run, from its settings to its result: what the command and `train` share."""

from __future__ import annotations

import logging
import signal
import threading
import traceback
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from border_cli.assemble import (
    Assembly,
    assemble,
    build_agent,
    build_evaluator,
    build_judge,
    build_recorders,
    env_factory,
    evaluates_in_background,
)
from border_cli.core.actors import ActorStats
from border_cli.core.clock import Clock, MonotonicClock
from border_cli.core.config import RunConfig
from border_cli.core.errors import Interrupted, Stalled
from border_cli.core.interfaces import Agent, Evaluator
from border_cli.core.output import Recorders
from border_cli.core.spaces import EnvSpec
from border_cli.core.stop import Heartbeat, StopFlag
from border_cli.core.threads import available_cores
from border_cli.core.timing import summed
from border_cli.nn.saving import save_state
from border_cli.run.checkpoint import CheckpointStore
from border_cli.run.record import RunRecord, derived_seeds
from border_cli.trainer.base import TrainerStats
from border_cli.trainer.bottleneck import bottleneck
from border_cli.trainer.recording import Recording
from border_cli.trainer.watchdog import Watchdog

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What a run leaves in the hands of its caller."""

    agent: Agent
    best_score: float
    actor_stats: list[ActorStats]
    trainer_stats: TrainerStats
    run_dir: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """What a caller is told when everything is built and nothing runs yet."""

    spec: EnvSpec
    device_name: str
    evaluation: str  # how the evaluator describes itself


@dataclass(slots=True, kw_only=True)
class Launch:
    """What a caller may bring along; every part has a default."""

    recorders: Recorders | None = None  # None: those of the config
    evaluator: Evaluator | None = None  # None: that of the config
    console: Any = None  # a rich console for the panel
    stop: StopFlag = field(default_factory=StopFlag)
    clock: Clock = field(default_factory=MonotonicClock)
    facts: Mapping[str, Any] = field(default_factory=dict)  # for run.json
    on_start: Callable[[Started], None] | None = None
    on_hung_learner: Callable[[Stalled], None] | None = None


def launch(config: RunConfig, run_dir: Path, options: Launch) -> Result:
    """Runs to the end and returns the result; `run.json` tells the truth whatever happens."""
    num_actors = config.actor_manager.num_actors
    record = RunRecord(run_dir, seeds=derived_seeds(config.seed, num_actors), **options.facts)
    record.write()
    assembly: Assembly | None = None
    try:
        heartbeat = Heartbeat("evaluation", waiting_for="its turn")
        with ExitStack() as cleanup:
            assembly = _build(config, run_dir, options, heartbeat, cleanup)
            actor_stats = _train(config, assembly, options, record, cleanup)
    except BaseException as error:
        record.content["traceback"] = "".join(traceback.format_exception(error))
        _end(config, record, assembly, *_status_of(error))
        raise
    stats = trainer_stats(assembly)
    _end(config, record, assembly, "done", f"{assembly.trainer.ended_by} reached")
    return Result(
        agent=assembly.agent,
        best_score=stats.best_score,
        actor_stats=actor_stats,
        trainer_stats=stats,
        run_dir=run_dir,
    )


def _build(
    config: RunConfig, run_dir: Path, options: Launch, heartbeat: Heartbeat, cleanup: ExitStack
) -> Assembly:
    recorders = options.recorders
    if recorders is None:
        recorders = build_recorders(config, run_dir, options.console)
    recording = Recording(recorders, options.clock)
    cleanup.callback(recording.close)
    evaluator = options.evaluator
    if evaluator is None:
        evaluator = build_evaluator(config, stop=options.stop, heartbeat=heartbeat)
    cleanup.callback(evaluator.close)
    factory = env_factory(config)
    agent = build_agent(config, factory.spec)
    judge = build_judge(config, agent, evaluator=evaluator, stop=options.stop, heartbeat=heartbeat)
    cleanup.callback(judge.close)
    if options.on_start is not None:  # before large memory is allocated
        options.on_start(
            Started(
                spec=factory.spec,
                device_name=agent.device_name,
                evaluation=_evaluation_line(config, evaluator),
            )
        )
    return assemble(
        config,
        agent=agent,
        factory=factory,
        judge=judge,
        recording=recording,
        checkpoints=CheckpointStore(run_dir, keep=config.checkpoint.keep, save_state=save_state),
        clock=options.clock,
        stop=options.stop,
    )


def _train(
    config: RunConfig,
    assembly: Assembly,
    options: Launch,
    record: RunRecord,
    cleanup: ExitStack,
) -> list[ActorStats]:
    learner = assembly.post_step.heartbeat

    def on_hung_learner(stalled: Stalled) -> None:
        _end(config, record, assembly, *_status_of(stalled))
        if options.on_hung_learner is not None:
            options.on_hung_learner(stalled)
        else:
            _interrupt(learner.thread_id)

    watchdog = Watchdog(
        [learner, assembly.judge.pulse, *assembly.actors.heartbeats()],
        timeout_s=config.trainer.stall_timeout_s,
        stop=options.stop,
        clock=options.clock,
        describe=lambda: _describe(assembly),
        on_hung_learner=on_hung_learner,
    )
    try:
        # The learner's thread is made ready first, which takes a minute where that compiles.
        # Whatever is closed is closed under the watchdog's eyes: that may hang, too.
        with assembly.agent.learner_thread(), watchdog, cleanup.pop_all(), assembly.actors:
            assembly.judge.open()
            return assembly.trainer.train()
    except KeyboardInterrupt:
        options.stop.check()  # what the watchdog found, where it interrupted a hung learner
        raise


def _evaluation_line(config: RunConfig, evaluator: Evaluator) -> str:
    line = evaluator.describe()
    if evaluates_in_background(config):
        return f"{line}, beside the learner"
    if config.evaluator.background:
        return f"{line}, in line, as in every run that repeats to the bit"
    return line


def _describe(assembly: Assembly) -> str:
    gauges = ", ".join(f"{key} {value:g}" for key, value in assembly.actors.gauges().items())
    counters = assembly.post_step.counters
    return f"{gauges}; {counters.samples_total:,} samples, {counters.opt_steps:,} opt steps"


def _interrupt(thread_id: int | None) -> None:
    """The last resort of a Python caller: a KeyboardInterrupt for the main thread.

    A real signal, because nothing less ends a wait. Other threads cannot be interrupted.
    """
    if thread_id is not None and thread_id == threading.main_thread().ident:
        log.critical("the learner's thread hangs and is interrupted")
        signal.pthread_kill(thread_id, signal.SIGINT)
    else:
        log.critical("the learner's thread hangs and cannot be interrupted")


def trainer_stats(assembly: Assembly) -> TrainerStats:
    """What the learner did so far."""
    post_step = assembly.post_step
    counters, scores = post_step.counters, post_step.scores
    return TrainerStats(
        opt_steps=counters.opt_steps,
        env_steps=counters.env_steps,
        samples_total=counters.samples_total,
        duration_s=post_step.elapsed_s,
        evaluations=scores.evaluations,
        best_score=scores.best,
        best_opt_steps=scores.best_opt_steps,
        last_score=scores.last,
        save_failures=post_step.saving.failures,
        recorder_failures=assembly.recording.failures,
        seconds=post_step.timing.seconds(),
    )


def _status_of(error: BaseException) -> tuple[str, str]:
    if isinstance(error, Interrupted | KeyboardInterrupt):
        return "interrupted", str(error) or "KeyboardInterrupt"
    first_line = (str(error).strip().splitlines() or [""])[0]
    return "failed", f"{type(error).__name__}: {first_line}"


def _end(
    config: RunConfig, record: RunRecord, assembly: Assembly | None, status: str, reason: str
) -> None:
    facts: dict[str, Any] = {}
    if assembly is not None:
        stats = trainer_stats(assembly)
        facts = {
            "best_score": stats.best_score,
            "best_opt_steps": stats.best_opt_steps,
            "final_score": stats.last_score,
            "opt_steps": stats.opt_steps,
            "env_steps": stats.env_steps,
            "samples_total": stats.samples_total,
            "save_failures": stats.save_failures,
            "recorder_failures": stats.recorder_failures,
        }
        if status != "failed":  # what held up a run that broke is what broke it
            facts["bottleneck"] = bottleneck(
                config,
                learner=stats.seconds,
                actors=summed(each.seconds for each in assembly.actors.stats()),
                device=assembly.agent.device_name,
                cores=available_cores(),
            )
    try:
        record.end(status, reason, **facts)
    except OSError as error:
        log.error("run.json could not be written: %s", error)
