"""One run, from its settings to its result: what the command and `train` share."""

from __future__ import annotations

import logging
import math
import signal
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from border_cli.core.config import RunConfig
from border_cli.core.errors import ActorCrashed, ConfigError, NotFinite, Stalled
from border_cli.core.files import not_through_links
from border_cli.core.interfaces import ActorStats, Evaluator
from border_cli.core.machine import out_of_memory
from border_cli.core.output import FILE_ONLY, Recorders, RunEnd
from border_cli.core.seeding import derived_seeds
from border_cli.core.spaces import EnvSpec
from border_cli.core.stop import Heartbeat, SaveFlag, StopFlag
from border_cli.core.timing import Clock, MonotonicClock
from border_cli.launch.build import (
    Assembly,
    assemble,
    build_agent,
    build_checkpoints,
    build_evaluator,
    build_first_agent,
    build_judge,
    build_recorders,
    encoders_of,
    env_factory,
    evaluates_in_background,
    memory_settings,
    num_actors,
    spec_of_state,
)
from border_cli.launch.restore import restore, restored_line
from border_cli.launch.summary import Result, closing_lines, facts_of, status_of
from border_cli.nn.saving import load_state
from border_cli.run.checkpoint import CheckpointStore
from border_cli.run.finding import Resumable, best_score
from border_cli.run.status import RunLock, RunRecord
from border_cli.trainer.recording import Recording
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """What a caller is told when everything is built and nothing runs yet."""

    spec: EnvSpec
    device_name: str
    evaluation: str  # how the evaluator describes itself
    encoders: list[tuple[str, str]]  # see `encoders_of`
    resumed_opt_steps: int | None = None  # of the checkpoint that the run goes on from
    restored: str = ""  # what comes back with it


@dataclass(slots=True, kw_only=True)
class Launch:
    """What a caller may bring along; every part has a default."""

    recorders: Recorders | None = None  # None: those of the config
    evaluator: Evaluator | None = None  # None: that of the config
    console: Any = None  # a rich console for the panel
    resume: bool = False  # goes on from the newest whole checkpoint in the run directory
    stop: StopFlag = field(default_factory=StopFlag)
    save: SaveFlag = field(default_factory=SaveFlag)
    clock: Clock = field(default_factory=MonotonicClock)
    facts: Mapping[str, Any] = field(default_factory=dict)  # for run.json
    settings: str = ""  # the text of `.hydra/resolved.yaml`, for checkpoints
    on_start: Callable[[Started], None] | None = None
    on_restored: Callable[[], None] = lambda: None  # a resume succeeded: the run goes on
    on_hung_learner: Callable[[Stalled], None] | None = None
    refused: ConfigError | None = None  # why the run ends before it begins, found beforehand


def launch(config: RunConfig, run_dir: Path, options: Launch) -> Result:
    """Runs to the end and returns the result; `run.json` tells the truth whatever happens.

    Raises ConfigError where another process runs there, and CheckpointError where there is nothing
    whole to resume from; neither changes anything.
    """
    with RunLock(run_dir) as lock:
        return _Run(config, run_dir, options, lock).run()


class _Run:
    """One attempt: what is built for it, and its document."""

    def __init__(self, config: RunConfig, run_dir: Path, options: Launch, lock: RunLock) -> None:
        self._config = config
        self._run_dir = run_dir
        self._options = options
        self._lock = lock
        self._assembly: Assembly | None = None
        facts = dict(options.facts)
        if not options.resume:
            facts = {"seeds": derived_seeds(config.seed, num_actors(config)), **facts}
        self._record = RunRecord(run_dir, lock=lock, **facts)

    def run(self) -> Result:
        """Builds, trains and tells how it ended."""
        if not self._options.resume:
            self._record.begin()
        try:
            heartbeat = Heartbeat("evaluation", waiting_for="its turn")
            with self._naming_lack_of_memory(), ExitStack() as cleanup:
                assembly = self._assembly = self._build(heartbeat, cleanup)
                actor_stats = self._train(assembly, cleanup)
        except BaseException as error:
            if isinstance(error, NotFinite) and error.rows is not None:
                self._keep_batch(error.rows)
            self._end(*status_of(error), traceback="".join(traceback.format_exception(error)))
            raise
        stats = assembly.trainer.stats()
        exit_reason = f"{assembly.trainer.ended_by} reached"
        self._end("done", exit_reason)
        return Result(
            agent=assembly.parts.agent,
            best_score=stats.best_score,
            actor_stats=actor_stats,
            trainer_stats=stats,
            run_dir=self._run_dir,
            exit_reason=exit_reason,
        )

    @contextmanager
    def _naming_lack_of_memory(self) -> Iterator[None]:
        """Says what was being done, and what takes memory, where an allocation fails."""
        try:
            yield
        except Exception as error:
            doing = "while the run was built"
            if self._assembly is not None:
                doing = DOING[self._assembly.trainer.post_step.timing.failing]
            if isinstance(error, ActorCrashed):
                doing = f"in actor {error.actor_id}"
            what = f"out of memory {doing}"
            failed = out_of_memory(error, what, memory_settings(self._config))
            if failed is None:
                raise
            raise failed from error

    def _build(self, heartbeat: Heartbeat, cleanup: ExitStack) -> Assembly:
        config, run_dir, options = self._config, self._run_dir, self._options
        if options.refused is not None:
            raise options.refused
        rows = config.checkpoint.replay_buffer
        found = Resumable(run_dir, rows=rows, load_state=load_state) if options.resume else None
        recorders = options.recorders
        if recorders is None:
            best = best_score(run_dir) if found else None
            recorders = build_recorders(config, run_dir, options.console, best)
        recording = Recording(recorders, options.clock)
        cleanup.callback(recording.close)
        evaluator = options.evaluator
        if evaluator is None:
            evaluator = build_evaluator(config, stop=options.stop, heartbeat=heartbeat)
        cleanup.callback(evaluator.close)
        factory = env_factory(config)
        if found is None:
            agent = build_first_agent(config, factory.spec)
        else:
            agent = build_agent(config, spec_of_state(config, factory.spec, found.agent))
        judge = build_judge(
            config, agent, evaluator=evaluator, stop=options.stop, heartbeat=heartbeat
        )
        cleanup.callback(judge.close)
        if options.on_start is not None:  # before large memory is allocated
            options.on_start(
                Started(
                    spec=factory.spec,
                    device_name=agent.device_name,
                    evaluation=_evaluation_line(config, evaluator),
                    encoders=encoders_of(agent),
                    resumed_opt_steps=found.newest.opt_steps if found else None,
                    restored=restored_line(config, found.newest) if found else "",
                )
            )
        store = build_checkpoints(config, run_dir, options.settings, self._lock.reacquire)
        cleanup.callback(store.close)
        assembly = assemble(
            config,
            agent=agent,
            factory=factory,
            judge=judge,
            recording=recording,
            checkpoints=store,
            clock=options.clock,
            stop=options.stop,
            save=options.save,
            on_saved=self._record.saved,
        )
        if found is not None:
            self._restore(found, assembly, store)
        cleanup.push(partial(_tell_the_end, assembly, recording))
        return assembly

    def _restore(self, found: Resumable, assembly: Assembly, store: CheckpointStore) -> None:
        opt_steps = restore(found, assembly.trainer, store)
        self._options.on_restored()
        self._record.begin(opt_steps)

    def _train(self, assembly: Assembly, cleanup: ExitStack) -> list[ActorStats]:
        parts, options = assembly.parts, self._options
        learner = assembly.trainer.post_step.heartbeat

        def on_hung_learner(stalled: Stalled) -> None:
            self._end(*status_of(stalled))
            if options.on_hung_learner is not None:
                options.on_hung_learner(stalled)
            else:
                interrupt(learner.thread_id)

        watchdog = Watchdog(
            [learner, parts.evaluation_runner.pulse, *parts.actors.heartbeats()],
            timeout_s=self._config.trainer.stall_timeout_s,
            stop=options.stop,
            clock=options.clock,
            describe=lambda: _describe(assembly),
            on_hung_learner=on_hung_learner,
        )
        try:
            # The learner's thread is made ready first, which takes a minute where that compiles.
            # Whatever is closed is closed under the watchdog's eyes: that may hang, too.
            with parts.agent.learner_thread(), watchdog, cleanup.pop_all(), parts.actors:
                parts.evaluation_runner.open()
                return assembly.trainer.train()
        except KeyboardInterrupt:
            options.stop.check()  # what the watchdog found, where it interrupted a hung learner
            raise

    def _keep_batch(self, rows: Mapping[str, NDArray[Any]]) -> None:
        """For whoever looks for the cause of a NaN."""
        path, content = self._run_dir / BATCH_FILE, dict[str, Any](rows)
        try:
            with open(path, "wb", opener=not_through_links) as file:
                np.savez(file, **content)
        except OSError as error:
            log.error("could not write %s: %s", BATCH_FILE, error)

    def _end(self, status: str, reason: str, **more: Any) -> None:
        if not self._record.begun:
            return
        facts = dict(more)
        if self._assembly is not None:
            facts |= facts_of(self._config, self._assembly, failed=status == "failed")
            for line in closing_lines(facts):
                log.info("%s", line, extra=FILE_ONLY)
        score = facts.get("best_score", -math.inf)
        with_score = f"; best score {score:.10g}" if math.isfinite(score) else ""
        log.info("run %s: %s%s", status, reason, with_score, extra=FILE_ONLY)
        self._record.end(status, reason, **facts)


def _tell_the_end(
    assembly: Assembly,
    recording: Recording,
    kind: object,
    error: BaseException | None,
    trace: object,
) -> None:
    """Tells the recorders how the run ended; an exit callback."""
    del kind, trace
    status = "done" if error is None else status_of(error)[0]
    best = assembly.trainer.stats().best_score
    recording.end(RunEnd(status=status, best_score=best if math.isfinite(best) else None))


def _evaluation_line(config: RunConfig, evaluator: Evaluator) -> str:
    line = evaluator.describe()
    if evaluates_in_background(config):
        return f"{line}, in the background"
    if config.evaluator.background:
        return f"{line}, inline, as in every bit-reproducible run"
    return line


def _describe(assembly: Assembly) -> str:
    gauges = ", ".join(f"{key} {value:g}" for key, value in assembly.parts.actors.gauges().items())
    counters = assembly.trainer.post_step.counters
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
